"""Fixtures of the tests of commands."""

import pathlib
import shutil
import sys

import pytest

from tests.support.commands import WIDGETS, Command

FILE = pathlib.Path(__file__).with_name("handlers.py")


@pytest.fixture(autouse=True)
def unchanged_path(monkeypatch):
    """Restores the path of modules: commands in this process add the folders of their files."""
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def command(tmp_path):
    """Starts commands in a folder with handlers and a manifest; they are ended after the test."""
    started = []
    shutil.copy(FILE, tmp_path / "handlers.py")
    (tmp_path / "widgets.yaml").write_text(WIDGETS)

    def start(*args, folder=tmp_path, **options):
        started.append(Command(folder, *args, **options))
        return started[-1]

    yield start
    for one in started:
        one.close()
