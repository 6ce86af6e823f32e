"""Shared by all Python tests: options, strictness, and the fixtures of the real control plane."""

import functools
import os
import pathlib
import signal
import sys
import threading

import pytest

from tests.support import order
from tests.support.differences import IN_REFERENCE
from tests.support.fixtures import (  # noqa: F401
    cluster,
    control_plane,
    crates,
    flavour,
    kopf_python,
    later_kind,
    namespace,
    new_namespace,
    operator,
    parcels,
    reference_python,
    shelf,
)

ROOT = pathlib.Path(__file__).resolve().parents[1]
REAL = ROOT / "tests" / "real"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kopf-python",
        metavar="PATH",
        default=os.environ.get("KOPF_PYTHON", sys.executable),
        help="the interpreter whose kopf is tested",
    )
    parser.addoption(
        "--reference-python",
        metavar="PATH",
        default=os.environ.get("KOPF_REFERENCE_PYTHON"),
        help="an interpreter with Kopf 1.45, for the tests of migration",
    )
    parser.addoption(
        "--embedded",
        action="store_true",
        help="the embedded server in place of a real control plane, for tests/examples and tests/operators",
    )


def pytest_configure(config: pytest.Config) -> None:
    # Tests send these signals to processes that they start. Such processes inherit that a signal is ignored.
    if threading.current_thread() is threading.main_thread():
        for signum, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
            if signal.getsignal(signum) is signal.SIG_IGN:
                signal.signal(signum, handler)
                config.add_cleanup(functools.partial(signal.signal, signum, signal.SIG_IGN))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items[:] = order.in_parts(items, config.workerinput["workercount"])
    ours = [item for item in items if REAL in item.path.parents or item.path.parent.name == "examples"]
    if not ours:
        return
    reference = flavour(config.getoption("--kopf-python")) == "kopf"
    known = {item.originalname if isinstance(item, pytest.Function) else item.name for item in ours}
    for item in ours:
        name = item.originalname if isinstance(item, pytest.Function) else item.name
        if reference and name in IN_REFERENCE:
            item.add_marker(pytest.mark.xfail(reason=IN_REFERENCE[name], strict=False))
    if len(ours) == len(items) and any(REAL in item.path.parents for item in items):
        unknown = set(IN_REFERENCE) - known
        narrowed = (
            config.getoption("-k")
            or config.getoption("lf", False)
            or any("::" in arg or ".py" in arg for arg in config.args)
        )
        if unknown and not narrowed:
            raise pytest.UsageError(f"differences.py names tests that do not exist: {sorted(unknown)}")


@pytest.fixture(scope="session")
def root() -> pathlib.Path:
    """The top of the repository."""
    return ROOT
