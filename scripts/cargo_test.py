"""Run Rust tests with cargo, and write the failed tests with their errors into a file, for `.ci/run`.

    cargo_test.py FILE [--again FILE_OF_BEFORE] CARGO_OPTION...

All test programs run, also after a failure. Lines about tests that have passed are not printed.
With `--again`, only the failed tests of an earlier run are run, one at a time.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterable
from typing import NamedTuple

RUNNING = re.compile(r"^\s+Running (?:unittests )?(\S+) \((?:\S*/)?(\S+?)-[0-9a-f]{16}\)$")
DOC_TESTS = re.compile(r"^\s+Doc-tests (\S+)$")
FAILED = re.compile(r"^test (.+?)(?: - should panic)? \.\.\. FAILED$")
ERROR_OF = re.compile(r"^---- (.+?)(?: - should panic)? stdout ----$")
PANICKED = re.compile(r"^thread '.*' (?:\(\d+\) )?panicked at (.+):$")
RESULT = re.compile(r"^test result: ")
# Lines about tests that have passed.
PASSED = re.compile(r"^test .+ \.\.\. (ok|ignored.*)$|^running \d+ tests?$|^$")
# A program that has ended without the list of its failed tests, such as by a stack overflow.
WHOLE = "(the whole program)"
NO_ERROR = "no error was reported"
LONGEST = 300


class Failed(NamedTuple):
    """A failed test."""

    program: str  # the name of its program, or of the crate of documentation tests
    option: str  # the option of cargo that selects the program
    test: str


class Report:
    """The failed tests in the output of `cargo test`."""

    def __init__(self) -> None:
        self.failed: dict[Failed, str] = {}
        self._running: tuple[str, str] | None = None
        self._test = ""
        self._panicked_at = ""

    def add(self, line: str) -> None:
        """Take a line of the output, without its end."""
        if match := RUNNING.match(line):
            self._begin(match[2], _option(match[1], match[2]))
        elif match := DOC_TESTS.match(line):
            self._begin(match[1], "--doc")
        elif RESULT.match(line):
            self._running = None
        elif self._running is None:
            return
        elif match := FAILED.match(line):
            self.failed[Failed(*self._running, match[1])] = NO_ERROR
        elif match := ERROR_OF.match(line):
            self._test, self._panicked_at = match[1], ""
        elif match := PANICKED.match(line):
            self._panicked_at = match[1]
        elif self._panicked_at and line.strip():
            self._add_error(f"{line.strip()} ({self._panicked_at})")

    def end(self) -> None:
        """Add the present program, since it has ended without a result."""
        if self._running is not None:
            self.failed[Failed(*self._running, WHOLE)] = "the program ended without a result"
            self._running = None

    def _begin(self, program: str, option: str) -> None:
        self.end()
        self._running, self._test, self._panicked_at = (program, option), "", ""

    def _add_error(self, error: str) -> None:
        assert self._running is not None
        failed = Failed(*self._running, self._test)
        if self.failed.get(failed) == NO_ERROR:
            self.failed[failed] = error[:LONGEST]
        self._panicked_at = ""


def _option(source: str, program: str) -> str:
    if source == "src/lib.rs":
        return "--lib"
    if source.startswith("src/"):
        return f"--bin={pathlib.PurePath(source).stem}"
    return f"--test={program}"


def run(command: list[str], report: Report) -> int:
    """Run the command, print its output without tests that have passed, and return its exit code."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            report.add(line.rstrip("\n"))
            if not PASSED.match(line.rstrip("\n")):
                print(line, end="", flush=True)
    report.end()
    return process.returncode


def commands(options: list[str], before: list[Failed] | None) -> Iterable[list[str]]:
    """The commands of cargo: one for all tests, or one for each group of programs with failed tests."""
    command = ["cargo", "test", "--no-fail-fast", *options]
    if before is None:
        yield command
        return
    for option in dict.fromkeys(failed.option for failed in before):
        names = [failed.test for failed in before if failed.option == option]
        exact = [] if WHOLE in names else ["--exact", *dict.fromkeys(names)]
        yield [*command, option, "--", "--test-threads=1", *exact]


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--again", type=pathlib.Path)
    arguments, options = parser.parse_known_args()
    before = None
    if arguments.again:
        before = [Failed(*each) for each in json.loads(arguments.again.read_text())["selected"]]
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    arguments.results.unlink(missing_ok=True)
    report, code = Report(), 0
    for command in commands(options, before):
        code = run(command, report) or code
    failed = {f"{each.program} {each.test}": error for each, error in report.failed.items()}
    # The codes of pytest: 1 if tests have failed; another one if not all could be run.
    result = {"code": 1 if code and failed else code, "failed": failed, "selected": list(report.failed)}
    arguments.results.write_text(json.dumps(result, indent=1) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
