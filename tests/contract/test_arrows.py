"""The dependency rules of the architecture, and a negative test for each check.

Crates depend only on the crates in the table; only one crate depends on PyO3; three Python modules import
the extension; Python packages import only from the layers below. Every check first asserts how many files
it has read, since a check of no files always passes.
"""

import ast
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "kopf"

# Who may depend on whom inside the workspace: (kind, name); the kind is None for ordinary dependencies.
CRATES = {
    "kopf-core": {("dev", "kopf-core")},
    "kopf-engine": {(None, "kopf-core"), ("dev", "kopf-apiserver"), ("dev", "kopf-core")},
    "kopf-apiserver": {("dev", "kopf-apiserver")},
    "kopf-py": {(None, "kopf-core"), (None, "kopf-engine"), (None, "kopf-apiserver")},
}
PYTHON_CRATES = {"pyo3", "pythonize", "pyo3-async-runtimes"}
# Dependencies that do I/O, which the core must not have.
IMPURE = {"tokio", "kube", "hyper", "reqwest", "rand", "tracing", "futures", "chrono", "socket2", "mio"}

FORBIDDEN_IN_CORE = {
    "a clock": {"std::time::Instant::now", "std::time::SystemTime::now"},
    "the environment": {"std::env::var", "std::env::var_os"},
    "files": {"std::fs::read", "std::fs::read_to_string", "std::fs::File"},
    "the network": {"std::net::TcpStream", "std::net::UdpSocket"},
    "waiting": {"std::thread::sleep"},
    "chance": {"std::hash::RandomState"},
}


def metadata(*options: str) -> dict:
    done = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--locked", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def violations(packages: list[dict]) -> list[str]:
    """Dependencies inside the workspace, or on Python's crates, which the tables do not know."""
    found = []
    names = {package["name"] for package in packages}
    for package in packages:
        for dependency in package["dependencies"]:
            name, kind = dependency["name"], dependency["kind"]
            if name in names and (kind, name) not in CRATES.get(package["name"], set()):
                found.append(f"{package['name']} -> {name} ({kind or 'normal'})")
            if name in PYTHON_CRATES and package["name"] != "kopf-py":
                found.append(f"{package['name']} -> {name}: only kopf-py may know Python")
            if name in IMPURE and package["name"] == "kopf-core" and kind is None:
                found.append(f"kopf-core -> {name}: the core does no input or output")
    return found


def test_crates_depend_as_in_the_table():
    packages = metadata("--no-deps")["packages"]
    assert {package["name"] for package in packages} == set(CRATES)
    assert sum(len(package["dependencies"]) for package in packages) > 20
    assert violations(packages) == []


@pytest.mark.parametrize(
    "package, name",
    [
        ("kopf-core", "kopf-engine"),
        ("kopf-core", "pyo3"),
        ("kopf-core", "tokio"),
        ("kopf-engine", "pythonize"),
        ("kopf-engine", "kopf-py"),
        ("kopf-apiserver", "kopf-core"),
        ("kopf-engine", "kopf-apiserver"),
    ],
)
def test_planted_dependencies_are_found(package, name):
    packages = metadata("--no-deps")["packages"]
    next(item for item in packages if item["name"] == package)["dependencies"].append(
        {"name": name, "kind": None}
    )
    assert len(violations(packages)) == 1


def test_forbidden_calls_of_the_core_are_in_the_table_with_their_replacements():
    table = tomllib.loads((ROOT / "rust/kopf-core/clippy.toml").read_text())
    rows = table["disallowed-methods"] + table["disallowed-types"]
    assert all(row["reason"] for row in rows)
    paths = {row["path"] for row in rows}
    for what, needed in FORBIDDEN_IN_CORE.items():
        assert needed <= paths, f"{what} is no longer forbidden"


def test_forbidden_calls_are_really_found(tmp_path):
    """Clippy and its table work: a planted clock in a small crate is rejected with our reason."""
    if shutil.which("cargo-clippy") is None:
        pytest.skip("clippy is not installed")
    (tmp_path / "src").mkdir()
    (tmp_path / "Cargo.toml").write_text(
        '[package]\nname = "planted"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n'
    )
    (tmp_path / "src/lib.rs").write_text(
        "pub fn now() -> std::time::SystemTime { std::time::SystemTime::now() }\n"
        'pub fn home() -> Option<std::ffi::OsString> { std::env::var_os("HOME") }\n'
    )
    done = subprocess.run(
        ["cargo", "clippy", "--offline", "--", "-D", "warnings"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        env=os.environ
        | {
            "CLIPPY_CONF_DIR": str(ROOT / "rust/kopf-core"),
            "CARGO_TARGET_DIR": str(tmp_path / "target"),
            "RUSTUP_TOOLCHAIN": os.environ.get("RUSTUP_TOOLCHAIN", "stable"),
        },
        timeout=60,
    )
    assert done.returncode != 0
    assert "use of a disallowed method `std::time::SystemTime::now`" in done.stderr
    assert "use of a disallowed method `std::env::var_os`" in done.stderr
    assert "time is an argument" in done.stderr


def importers(package: pathlib.Path) -> tuple[int, set[str]]:
    """The number of modules, and the modules that import the extension in any way."""
    modules = sorted(package.rglob("*.py"))
    found = set()
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" if node.module else alias.name for alias in node.names]
                names.append(node.module or "")
            elif isinstance(node, ast.Constant) and node.value == "kopf._kopf":
                names = [node.value]
            if any("_kopf" in name.split(".") for name in names):
                found.add(path.relative_to(package).as_posix())
    return len(modules), found


def test_three_modules_import_the_compiled_one():
    count, found = importers(PACKAGE)
    assert count > 30
    assert found == {"_objects/rules.py", "_runtime/bridge.py", "_testing/bindings.py"}


def test_operators_do_not_import_the_bindings_of_the_testing_kit():
    module = (ROOT / "rust/kopf-py/src/lib.rs").read_text()
    exported = set(re.findall(r"use crate::testing_kit::\w+::(\w+);", module))
    assert exported == {"ApiServer", "VirtualTime"}
    imported = {
        alias.name
        for node in ast.walk(ast.parse((PACKAGE / "_runtime/bridge.py").read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "kopf._kopf"
        for alias in node.names
    }
    assert len(imported) > 30
    assert not imported & exported


@pytest.mark.parametrize(
    "line",
    [
        "import kopf._kopf",
        "from kopf import _kopf",
        "from kopf._kopf import Object",
        "from .. import _kopf",
        "from ._kopf import Object",
        'importlib.import_module("kopf._kopf")',
    ],
)
def test_planted_importer_is_found(tmp_path, line):
    (tmp_path / "views.py").write_text(f"def f():\n    {line}\n")
    assert importers(tmp_path) == (1, {"views.py"})


def lint_imports(python: pathlib.Path) -> subprocess.CompletedProcess[str]:
    tool = shutil.which(
        "lint-imports", path=os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    )
    if tool is None:
        pytest.skip("import-linter is not installed")
    return subprocess.run(
        [tool, "--config", ROOT / ".importlinter", "--no-cache"],
        cwd=python,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(python), "COLUMNS": "200"},
        timeout=60,
    )


def test_packages_import_from_the_layers_below():
    done = lint_imports(ROOT / "python")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout
    analyzed = next(line for line in done.stdout.splitlines() if line.startswith("Analyzed "))
    assert int(analyzed.split()[1]) > 30


@pytest.mark.parametrize(
    "where, line",
    [
        ("_objects/planted.py", "from kopf._intents import errors"),
        ("_intents/planted.py", "from kopf._runtime import loggers"),
        ("_runtime/planted.py", "from kopf._kits import hierarchies"),
        ("_runtime/planted.py", "from kopf._testing import clock"),
        ("_runtime/planted.py", "import kopf"),
        ("_kits/planted.py", "from kopf._testing import cluster"),
        ("_testing/planted.py", "from kopf._cli import dev"),
        ("_testing/planted.py", "import kopf.testing"),
    ],
)
def test_planted_imports_upwards_are_found(tmp_path, where, line):
    shutil.copytree(PACKAGE, tmp_path / "kopf", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (tmp_path / "kopf" / where).write_text(f'"""Planted."""\n{line}\n')
    done = lint_imports(tmp_path)
    assert done.returncode != 0
    assert " broken" in done.stdout and "0 broken" not in done.stdout


def test_planted_circle_is_found(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "kopf", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (tmp_path / "kopf/_objects/planted.py").write_text('"""Planted."""\nfrom kopf._objects import views\n')
    views = tmp_path / "kopf/_objects/views.py"
    planted = "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from kopf._objects import planted\n"
    views.write_text(views.read_text() + planted)
    done = lint_imports(tmp_path)
    assert done.returncode != 0
    assert "No modules import each other in a circle BROKEN" in done.stdout
