"""The wheel as users install it, into separate environments."""

import contextlib
import fcntl
import os
import pathlib
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator

import pytest

from tests.docs.following import NO_COMPILATION
from tests.support.registry import check_registry, unavailable

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Environment:
    """An environment of the same interpreter; it is empty if the folder does not exist yet."""

    def __init__(self, folder: pathlib.Path, pip: pathlib.Path) -> None:
        if not folder.exists():
            venv.create(folder, with_pip=False)
        self.folder = folder
        self.python = folder / "bin" / "python"
        self._pip = pip

    def pip(self, *args: str) -> None:
        """Run pip for this environment."""
        command = [sys.executable, str(self._pip), "--python", str(self.python), "--quiet", *args]
        env = os.environ | NO_COMPILATION
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=170)
        assert done.returncode == 0, done.stderr

    def run(self, *args: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run the interpreter of the environment, away from the sources."""
        excluded = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
        env = {key: value for key, value in os.environ.items() if key not in excluded}
        return subprocess.run(
            [str(self.python), *args],
            cwd=self.folder,
            env=env,
            input=input,
            capture_output=True,
            text=True,
            timeout=60,
        )


@pytest.fixture()
def environment(tmp_path: pathlib.Path, pip: pathlib.Path) -> Environment:
    return Environment(tmp_path / "venv", pip)


Make = Callable[[pathlib.Path], None]


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Make], pathlib.Path]:
    """Make a folder, once for all processes of the run."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent

    @contextlib.contextmanager
    def locked(path: pathlib.Path) -> Iterator[None]:
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
            yield

    def find(name: str, make: Make) -> pathlib.Path:
        folder, made = base / name, base / f"{name}.made"
        with locked(base / f"{name}.lock"):
            if not made.exists():
                folder.mkdir(exist_ok=True)  # it can be left from a failure
                make(folder)
                made.touch()
        return folder

    return find


@pytest.fixture(scope="session")
def pip(once: Callable[[str, Make], pathlib.Path]) -> pathlib.Path:
    """The newest pip, as a program for Python. Without a registry, the test is skipped; in CI, it fails.

    Older ones, as in new environments of older versions of Python, need seconds for the page of a project.
    """

    def install(folder: pathlib.Path) -> None:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), "pip"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=170)
        if done.returncode:
            check_registry(done.stderr)
        assert done.returncode == 0, done.stderr

    return once("pip", install) / "pip"


@pytest.fixture(scope="session")
def wheel() -> str:
    """The wheel of the checkout, which is not optimised, or the one of `make test-wheel`."""
    return os.environ.get("KOPF_WHEEL") or _built("target/wheels", "kopf_rs-*.whl", "make demo")


@pytest.fixture(scope="session")
def installed(once: Callable[[str, Make], pathlib.Path], pip: pathlib.Path, wheel: str) -> Environment:
    """An environment with nothing but the wheel, which is shared: tests only read it."""
    folder = once("installed", lambda folder: Environment(folder / "venv", pip).pip("install", wheel))
    return Environment(folder / "venv", pip)


@pytest.fixture(scope="session")
def optimised_wheel() -> str:
    """The wheel for users; `make test-wheel` and the workflow of releases build it."""
    if "KOPF_WHEEL" not in os.environ:
        pytest.skip("It needs the optimised wheel: `make test-wheel`.")
    return os.environ["KOPF_WHEEL"]


@pytest.fixture(scope="session")
def metadata_wheel() -> str:
    """The wheel of the distribution `kopf` that is only metadata."""
    return _built("dist", "kopf-*.whl", "make wheel")


def _built(folder: str, pattern: str, command: str) -> str:
    found = sorted((ROOT / folder).glob(pattern))
    if not found:
        unavailable(f"There is no {pattern} in {folder}: run `{command}`.")
    return str(found[-1])
