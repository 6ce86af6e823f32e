"""Typed operators are accepted by type checkers, mistakes are found, and the stub is what the extension is.

The sources are in `tests/typing`. They are typical for operators of Kopf 1.45, and are accepted with it, too,
except for what is ours only.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from kopf import _kopf

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "typing"
FILES = sorted(path.name for path in FOLDER.glob("*.py"))
# They use additions of kopf-rs; in Kopf 1.45, decorated functions lose their types.
OURS = ["calls.py", "ours.py"]
# Kopf 1.45 accepts functions by id, but has no type for them.
UNTYPED_IN_ORIGINAL = "handlers.py"
# Names that only the testing extension has.
UNSHIPPED = ["InjectedWork", "inject_panics", "inject_review", "inject"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder where mypy keeps what it knows of the packages, and nothing else is."""
    return tmp_path_factory.mktemp("mypy")


def mypy(python: str, file: pathlib.Path, folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    cache = folder / pathlib.Path(python).parents[1].name
    options = ["--strict", "--config-file=", f"--cache-dir={cache}", f"--python-executable={python}"]
    command = [sys.executable, "-m", "mypy", *options, str(file)]
    env = {key: value for key, value in os.environ.items() if key not in ("MYPYPATH", "PYTHONPATH")}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=env, timeout=150)


def test_files_are_seen():
    assert FILES == ["calls.py", "embedding.py", "handlers.py", "mistakes.py", "ours.py"]


@pytest.mark.parametrize("name", FILES)
def test_operators_are_accepted_and_mistakes_are_found_by_mypy(name, kopf_python, folder):
    done = mypy(kopf_python, FOLDER / name, folder)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", [name for name in FILES if name not in OURS])
def test_they_are_accepted_with_the_original_too(name, reference_python, folder):
    # The same functions are rejected as a value of a type variable here, as an argument there.
    copy = folder / name
    copy.write_text((FOLDER / name).read_text().replace("ignore[type-var]", "ignore[arg-type]"))
    done = mypy(reference_python, copy, folder)
    mine = [line for line in done.stdout.splitlines() if f"/{name}:" in line and "error:" in line]
    if name == UNTYPED_IN_ORIGINAL:
        mine = [line for line in mine if "[dict-item]" not in line]
    assert mine == []


@pytest.mark.parametrize("name", [name for name in FILES if name != "mistakes.py"])
def test_operators_are_accepted_by_pyright(name, kopf_python, tmp_path):
    tool = os.environ.get("PYRIGHT") or shutil.which("basedpyright") or shutil.which("pyright")
    if tool is None:
        pytest.skip("pyright is not installed: `make lint-typing` has its own")
    shutil.copy(FOLDER / name, tmp_path)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    done = subprocess.run(
        [tool, "--pythonpath", kopf_python], cwd=tmp_path, capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_stub_is_what_the_extension_is(kopf_python, tmp_path):
    if kopf_python != sys.executable:
        pytest.skip("stubs are compared with what is imported here")
    command = [sys.executable, "-m", "mypy.stubtest", "kopf._kopf", "--concise"]
    command += ["--allowlist", str(FOLDER / "stubtest-allowlist.txt")]
    if not hasattr(_kopf, "inject"):
        allowed = tmp_path / "unshipped.txt"
        allowed.write_text("".join(f"kopf._kopf.{name}\n" for name in UNSHIPPED))
        command += ["--allowlist", str(allowed)]
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=env, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_stub_would_be_found(kopf_python, tmp_path):
    """The same, without the list of what is allowed: something is found."""
    command = [sys.executable, "-m", "mypy.stubtest", "kopf._kopf", "--concise"]
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=env, timeout=150)
    assert done.returncode == 1
    assert "kopf._kopf.DiffTuple is not present at runtime" in done.stdout
