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

pytestmark = pytest.mark.contract("api 1.3", "api 12")

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "typing"
FILES = sorted(path.name for path in FOLDER.glob("*.py"))
# They use additions of kopf-rs; in Kopf 1.45, decorated functions lose their types.
OURS = ["calls.py", "ours.py"]
# Errors only with Kopf 1.45: a file, and a part of the error.
ONLY_OURS = [
    ("handlers.py", "[dict-item]"),  # functions by id, which it accepts, but has no type for
    ("embedding.py", '"status_address"'),
    ("mistakes.py", "[unused-ignore]"),  # results of admission handlers
]
# Names that only the testing extension has.
UNSHIPPED = ["InjectedWork", "inject_panics", "inject_review", "inject"]


def mypy(python: str, files: list[pathlib.Path], folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """One run for all files, since most of its time is for the packages that they import."""
    options = [
        "--strict",
        "--config-file=",
        f"--cache-dir={folder / 'cache'}",
        f"--python-executable={python}",
    ]
    command = [sys.executable, "-m", "mypy", *options, f"--python-executable={python}", *map(str, files)]
    env = {key: value for key, value in os.environ.items() if key not in ("MYPYPATH", "PYTHONPATH")}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=env, timeout=150)


def test_files_are_seen():
    assert FILES == ["calls.py", "embedding.py", "handlers.py", "mistakes.py", "ours.py"]


def test_operators_are_accepted_and_mistakes_are_found_by_mypy(kopf_python, tmp_path):
    done = mypy(kopf_python, [FOLDER / name for name in FILES], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_they_are_accepted_with_the_original_too(reference_python, tmp_path):
    copies = [tmp_path / name for name in FILES if name not in OURS]
    for copy in copies:
        # The same functions are rejected as a value of a type variable here, as an argument there.
        copy.write_text((FOLDER / copy.name).read_text().replace("ignore[type-var]", "ignore[arg-type]"))
    done = mypy(reference_python, copies, tmp_path)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    known = {
        line for line in errors for file, part in ONLY_OURS if line.startswith(f"{file}:") and part in line
    }
    assert len(known) == 4
    assert [line for line in errors if line not in known] == []


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
    """Without the list of what is allowed, exactly that is found."""
    if kopf_python != sys.executable:
        pytest.skip("stubs are compared with what is imported here")
    lines = (FOLDER / "stubtest-allowlist.txt").read_text().splitlines()
    allowed = {line for line in lines if not line.startswith("#")}
    if not hasattr(_kopf, "inject"):
        allowed |= {f"kopf._kopf.{name}" for name in UNSHIPPED}
    command = [sys.executable, "-m", "mypy.stubtest", "kopf._kopf", "--concise"]
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=env, timeout=150)
    assert done.returncode == 1, done.stdout + done.stderr
    found = {line.partition(" is not present ")[0] for line in done.stdout.splitlines() if line}
    assert found == allowed
