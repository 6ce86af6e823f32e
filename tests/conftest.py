"""What all Python tests share: strictness, and the paths of the repository."""
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture(scope='session')
def root() -> pathlib.Path:
    """The top of the repository."""
    return ROOT
