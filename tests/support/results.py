"""A pytest plugin that writes the failed tests with their errors into a file, for the report of `.ci/run`.

    python -m pytest -p tests.support.results --results target/results/python.json

The file has the exit code of pytest, and the last line of the error of each failed test by its node id. It is
written at the end of the run: a run that was interrupted or killed leaves none.
"""

import json
import pathlib

import pytest

# An error line is part of a one-line report.
LONGEST = 300


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--results", metavar="FILE", help="write the failed tests with their errors here")


def pytest_configure(config: pytest.Config) -> None:
    # The worker processes of xdist send their reports to the main process.
    if config.getoption("--results") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Results(pathlib.Path(config.getoption("--results"))))


class _Results:
    def __init__(self, path: pathlib.Path) -> None:
        self._path = path.absolute()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        self._failed: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._add(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._add(report)

    def _add(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            self._failed.setdefault(report.nodeid, _last_line(report))

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        text = json.dumps({"code": int(exitstatus), "failed": self._failed}, indent=1)
        self._path.write_text(text + "\n")


def _last_line(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The message of the exception: a failed assertion ends with many lines of comparison."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else report.longreprtext
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "no error was reported"
    line = lines[0] if crash is not None else lines[-1].removeprefix("E ").strip()
    return line[:LONGEST]
