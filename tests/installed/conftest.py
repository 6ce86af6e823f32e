"""The wheel as users install it, into separate environments."""

import os
import pathlib
import subprocess
import sys
import venv

import pytest

from tests.support.registry import check_registry, unavailable

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Environment:
    """An empty environment of the same interpreter."""

    def __init__(self, folder: pathlib.Path) -> None:
        venv.create(folder, with_pip=False)
        self.folder = folder
        self.python = folder / "bin" / "python"

    def pip(self, *args: str) -> None:
        """Run pip for this environment. Without a registry, the test is skipped; in CI, it fails."""
        command = [sys.executable, "-m", "pip", "--python", str(self.python), "--quiet", *args]
        done = subprocess.run(command, capture_output=True, text=True, timeout=170)
        if done.returncode:
            check_registry(done.stderr)
        assert done.returncode == 0, done.stderr

    def run(self, *args: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run the interpreter of the environment, away from the sources."""
        env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
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
def environment(tmp_path: pathlib.Path) -> Environment:
    return Environment(tmp_path / "venv")


@pytest.fixture(scope="session")
def wheel() -> str:
    """The wheel of the checkout, which is not optimised, or the one of `make test-wheel`."""
    return os.environ.get("KOPF_WHEEL") or _built("target/wheels", "kopf_rs-*.whl", "make demo")


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
