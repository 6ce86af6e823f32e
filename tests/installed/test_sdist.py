"""The source distribution: completeness and metadata."""

import json
import pathlib
import subprocess
import sys
import tarfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("sdist")
    tool = pathlib.Path(sys.executable).with_name("maturin")
    if not tool.exists():
        pytest.skip("maturin is not installed")
    done = subprocess.run(
        [tool, "sdist", "--out", folder], cwd=ROOT, capture_output=True, text=True, timeout=170
    )
    assert done.returncode == 0, done.stderr
    [path] = folder.glob("*.tar.gz")
    return path


def test_everything_for_a_build_is_in(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"PKG-INFO", "Cargo.lock", "Cargo.toml", "pyproject.toml", "LICENSE", "README.md"} <= names
    crates = {path.parent.name for path in (ROOT / "rust").glob("*/Cargo.toml")}
    assert len(crates) == 4
    assert {f"rust/{crate}/Cargo.toml" for crate in crates} <= names
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "python/kopf").rglob("*.py")}
    assert len(sources) > 50
    assert sources <= names
    assert not [name for name in names if name.endswith((".so", ".pyc"))]


def test_pip_understands_what_it_is(environment, sdist, tmp_path):
    report = tmp_path / "report.json"
    environment.pip("install", "--dry-run", "--no-deps", "--report", str(report), str(sdist))
    [item] = json.loads(report.read_text())["install"]
    metadata = item["metadata"]
    assert metadata["name"] == "kopf-rs"
    needed = {line.split(">")[0].lower() for line in metadata["requires_dist"] if "extra ==" not in line}
    assert needed == {"click", "pyyaml"}
    # The extras of Kopf 1.45, so that existing requirements with extras still work.
    assert set(metadata["provides_extra"]) == {"full-auth", "uvloop", "dev"}
