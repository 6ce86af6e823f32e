"""Programs that only tests need."""

import os
import pathlib
import shutil
import subprocess

import pytest

SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"


def program(name: str) -> str:
    """The path of a program, as its script finds it; the test is skipped with the reason if there is none."""
    done = subprocess.run([SCRIPTS / f"{name}.sh"], capture_output=True, text=True, timeout=170)
    if done.returncode == 3:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def promtool() -> str:
    """The path of promtool: that of `PROMTOOL`, or on the `PATH`; without any, the test is skipped."""
    return _of_prometheus("promtool")


def prometheus() -> str:
    """The path of Prometheus: that of `PROMETHEUS`, or on the `PATH`; without any, the test is skipped."""
    return _of_prometheus("prometheus")


def _of_prometheus(name: str) -> str:
    found = os.environ.get(name.upper()) or shutil.which(name)
    if not found:
        pytest.skip(f"there is no {name}: install the Debian package prometheus, or set {name.upper()}")
    return found
