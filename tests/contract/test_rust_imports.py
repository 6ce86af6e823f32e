"""Modules of the Rust crates import downwards and without cycles; planted violations are found."""

import pathlib
import shutil
import tomllib

import pytest

from scripts import rust_imports

ROOT = pathlib.Path(__file__).resolve().parents[2]

LAYERS = tomllib.loads((ROOT / "scripts" / "rust_layers.toml").read_text())


def violations(crate, source=None, files=None):
    table = LAYERS[crate]
    files = table["files"] if files is None else files
    return rust_imports.violations(crate, source or ROOT / table["source"], table["order"], files=files)


@pytest.mark.parametrize("crate", sorted(LAYERS))
def test_modules_import_downwards_and_in_no_circles(crate):
    assert violations(crate) == []


@pytest.mark.parametrize(
    "crate, file, line, expected",
    [
        (
            "kopf-core",
            "json/path.rs",
            "use crate::cycle::Cycle;",
            "path imports cycle, which is above it",
        ),
        ("kopf-core", "json/path.rs", "use crate::{cycle::{self}, time};", "json::path imports cycle"),
        ("kopf-core", "object/span.rs", "fn f() { crate::cycle::f() }", "object::span imports cycle"),
        ("kopf-core", "object/span.rs", "use super::contains::f;", "circle of "),
        ("kopf-core", "lib.rs", "mod surplus;", "surplus is missing in the order of modules"),
        (
            "kopf-engine",
            "time/clock.rs",
            "pub(crate) use crate::watch::*;\nuse crate::worker::f;",
            "imports worker",
        ),
        ("kopf-py", "errors.rs", "use super::engine::Engine;", "errors imports engine"),
    ],
)
def test_planted_violations_are_found(tmp_path, crate, file, line, expected):
    source = tmp_path / "src"
    shutil.copytree(ROOT / LAYERS[crate]["source"], source)
    (source / "surplus.rs").write_text("")
    (source / "object/contains.rs").parent.mkdir(exist_ok=True)
    if line.endswith("contains::f;"):
        contains = source / "object/contains.rs"
        contains.write_text(contains.read_text() + "\nuse super::span::Span;\n")
    planted = source / file
    planted.write_text(planted.read_text() + f"\n{line}\n")
    assert any(expected in violation for violation in violations(crate, source))


@pytest.mark.parametrize("line", ["// use crate::cycle::Cycle;", 'const S: &str = "crate::cycle::Cycle";'])
def test_comments_and_strings_are_no_imports(tmp_path, line):
    source = tmp_path / "src"
    shutil.copytree(ROOT / LAYERS["kopf-core"]["source"], source)
    planted = source / "time.rs"
    planted.write_text(planted.read_text() + f"\n{line}\n")
    assert violations("kopf-core", source) == []


def test_a_check_that_sees_too_few_files_fails():
    [found] = violations("kopf-core", files=10_000)
    assert "files found" in found
