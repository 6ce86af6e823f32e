"""The stages of `.ci/run`, and the report of all their failures.

A stage that fails does not skip the others; only without a build nothing else can run. After all stages, the
failed tests run once more, with nothing else running. A test that passes then is reported as flaky: it is a
defect whose cause is to be found, but a few of them do not fail the run.

The last lines of the output name the failed stages, the failed and the flaky tests with their errors, and the
time of each stage.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
# The exit code of pytest if tests have failed, and nothing else was wrong.
TESTS_FAILED = 1
# The exit code of a stage that was ended, as of timeout(1).
TIMED_OUT = 124
# More flaky tests fail the run.
MOST_FLAKY = 5
# Seconds for the second run of the failed tests of a target.
AGAIN_LIMIT = 600
# Seconds between SIGTERM and SIGKILL for the stages of a run that is ended.
GRACE = 20
# The number of reported lines of each kind: the report fits on a screen.
MOST_REPORTED = 20
# The folders of tests/behaviours that depend on the interpreter: its coroutines, tasks, threads, memory.
# The workflow of the wheels runs all tests under each supported version of Python.
INTERPRETED = (
    "activities",
    "asynchronous",
    "caches",
    "calling",
    "client",
    "concurrency",
    "errors",
    "handler_errors",
    "lifecycles",
    "memory",
    "time",
)
# The closing lines of pytest, cargo test and the differential suite.
CLOSING = re.compile(
    r"^=+ .*\d+ (passed|failed|error|skipped).* =+$|^Differential suite|^\d+ passed, \d+ failed"
)
CARGO_RESULT = re.compile(r"^test result: .* (\d+) passed; (\d+) failed; (\d+) ignored")


@dataclasses.dataclass
class Stage:
    """A finished stage."""

    name: str
    seconds: float
    code: int
    targets: Sequence[str]  # the make targets that have written the results of their tests


class Run:
    """A run of stages in a checkout."""

    def __init__(self, root: pathlib.Path, results: pathlib.Path, make: Sequence[str] = ("make",)) -> None:
        """`results` is the folder with the results of the make targets; `make` runs a target."""
        self._root = root
        self._results = results
        self._make = make
        self._stages: list[Stage] = []
        self._closing: list[str] = []
        self._cargo = [0, 0, 0]
        self._background: dict[str, tuple[threading.Thread, list[str]]] = {}
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[str]] = set()
        self._is_stopped = False

    def stage(
        self,
        name: str,
        minutes: float,
        command: Sequence[str],
        *,
        targets: Sequence[str] = (),
        without: Sequence[str] = (),
    ) -> bool:
        """Run a stage without these variables of the environment, and return whether it has passed."""
        print(f"--- {name}", flush=True)
        passed: list[bool] = []
        thread = threading.Thread(
            target=lambda: passed.append(self._execute(name, minutes, command, targets, without, _print)),
            name=name,
        )
        thread.start()
        _join(thread)
        return passed == [True]

    def begin(
        self,
        name: str,
        minutes: float,
        command: Sequence[str],
        *,
        targets: Sequence[str] = (),
        after: str | None = None,
    ) -> None:
        """Start a stage in the background, when another one in the background has finished, if it is named.

        The output is printed when the stage is awaited.
        """
        lines: list[str] = []
        previous = None if after is None else self._background[after][0]

        def execute() -> None:
            if previous is not None:
                _join(previous)
            self._execute(name, minutes, command, targets, (), lines.append)

        thread = threading.Thread(target=execute, name=name)
        self._background[name] = (thread, lines)
        thread.start()

    def wait(self, name: str) -> None:
        """Wait until a stage in the background has finished, and print its output."""
        thread, lines = self._background.pop(name)
        _join(thread)
        print("\n".join([f"--- {name} (it ran in the background)", *lines]), flush=True)

    def finish(self) -> int:
        """Run the failed tests once more, report everything, and return the exit code."""
        for name in list(self._background):
            self.wait(name)
        failed, flaky, incomplete = self._judge_tests()
        failed_stages = [
            stage for stage in self._stages if stage.code and not self._is_excused(stage, failed, incomplete)
        ]
        is_well = not failed_stages and len(flaky) <= MOST_FLAKY
        self._report(failed_stages, failed, flaky)
        print("All is well." if is_well else "FAILED.", flush=True)
        return 0 if is_well else 1

    def stop(self) -> None:
        """End all stages with their children; a stage that is started later is ended at once."""
        with self._lock:
            self._is_stopped = True
            processes = list(self._processes)
        for process in processes:
            _kill(process, signal.SIGTERM)
        deadline = time.monotonic() + GRACE
        for process in processes:
            while _is_running(process) and time.monotonic() < deadline:
                time.sleep(0.1)  # there is no event for the end of a process group
            _kill(process, signal.SIGKILL)

    def _execute(
        self,
        name: str,
        minutes: float,
        command: Sequence[str],
        targets: Sequence[str],
        without: Sequence[str],
        show: Callable[[str], object],
    ) -> bool:
        begun = time.monotonic()
        environment = {key: value for key, value in os.environ.items() if key not in without}
        for target in targets:
            self._path(target).unlink(missing_ok=True)
        with self._started(command, environment) as process:
            limit = threading.Timer(minutes * 60, _kill, (process, signal.SIGTERM))
            limit.start()
            killer = threading.Timer(minutes * 60 + 30, _kill, (process, signal.SIGKILL))
            killer.start()
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    self._note(line.rstrip("\n"))
                    show(line.rstrip("\n"))
                code = process.wait()
                timed_out = not limit.is_alive()
            finally:  # the interpreter does not exit before its timers
                limit.cancel()
                killer.cancel()
        if timed_out:
            show(f"{name}: it took longer than {minutes} minutes, and was ended.")
        self._stages.append(
            Stage(name, time.monotonic() - begun, TIMED_OUT if timed_out else code, tuple(targets))
        )
        return code == 0 and not timed_out

    @contextlib.contextmanager
    def _started(
        self, command: Sequence[str], environment: dict[str, str]
    ) -> Iterator[subprocess.Popen[str]]:
        """Start the command in a separate process group. If the run is interrupted, end all its stages."""
        with subprocess.Popen(
            command,
            cwd=self._root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                with self._lock:
                    self._processes.add(process)
                    is_stopped = self._is_stopped
                if is_stopped:
                    _kill(process, signal.SIGKILL)
                yield process
            except BaseException:
                self.stop()  # Popen would wait until the stage ends by itself
                raise
            finally:
                with self._lock:
                    self._processes.discard(process)

    def _note(self, line: str) -> None:
        if CLOSING.match(line):
            self._closing.append(line)
        elif match := CARGO_RESULT.match(line):
            counts = zip(self._cargo, match.groups(), strict=True)
            self._cargo = [total + int(number) for total, number in counts]

    def _path(self, target: str, suffix: str = "") -> pathlib.Path:
        return self._results / f"{target}{suffix}.json"

    def _judge_tests(self) -> tuple[dict[str, str], dict[str, str], set[str]]:
        """The tests that have failed twice, those that have then passed, and the incomplete targets."""
        failed: dict[str, str] = {}
        flaky: dict[str, str] = {}
        incomplete: set[str] = set()
        for target in dict.fromkeys(target for stage in self._stages for target in stage.targets):
            before = _read(self._path(target))
            if before is None or before["code"] not in (0, TESTS_FAILED):
                incomplete.add(target)
            errors = {f"{target}: {test}": error for test, error in (before or {}).get("failed", {}).items()}
            if not errors:
                continue
            again = self._fail_again(target)
            for test, error in errors.items():
                (failed if again is None or test in again else flaky)[test] = error
        return failed, flaky, incomplete

    def _fail_again(self, target: str) -> set[str] | None:
        """Run the failed tests of a target alone, and return those that fail; None if they cannot run."""
        self._path(target, ".again").unlink(missing_ok=True)
        command = [*self._make, target, "AGAIN=1"]
        cargo = self._cargo
        self.stage(f"{target}, its failed tests once more", AGAIN_LIMIT / 60, command)
        self._cargo = cargo  # each test counts once
        self._stages[-1] = dataclasses.replace(self._stages[-1], code=0)  # the tests are judged one by one
        after = _read(self._path(target, ".again"))
        if after is None or after["code"] not in (0, TESTS_FAILED):
            return None
        return {f"{target}: {test}" for test in after["failed"]}

    def _is_excused(self, stage: Stage, failed: dict[str, str], incomplete: set[str]) -> bool:
        """Whether the stage has failed only since flaky tests have failed."""
        if stage.code == TIMED_OUT or not stage.targets or incomplete & set(stage.targets):
            return False
        failed_targets = {test.partition(": ")[0] for test in failed}
        results = [_read(self._path(target)) or {} for target in stage.targets]
        return not failed_targets & set(stage.targets) and any(result.get("failed") for result in results)

    def _report(self, stages: list[Stage], failed: dict[str, str], flaky: dict[str, str]) -> None:
        print("--- Closing lines of the test runners:")
        for line in self._closing[-MOST_REPORTED:]:
            print(line)
        if any(self._cargo):
            passed, failures, ignored = self._cargo
            word = "FAILED" if failures else "ok"
            print(f"test result: {word}. {passed} passed; {failures} failed; {ignored} ignored; of cargo")
        print("--- How long each stage took (minutes:seconds):")
        for stage in self._stages:
            print(f"{int(stage.seconds / 60):4}:{int(stage.seconds % 60):02}  {stage.name}")
        for stage in stages:
            reason = "took too long" if stage.code == TIMED_OUT else f"exit code {stage.code}"
            print(f"FAILED STAGE: {stage.name} ({reason})")
        _print_some("FAILED TEST", failed)
        _print_some("FLAKY", flaky)
        if len(flaky) > MOST_FLAKY:
            print(f"{len(flaky)} tests are flaky; more than {MOST_FLAKY} fail the run.")


def _print(line: str) -> None:
    print(line, flush=True)


def _print_some(head: str, tests: dict[str, str]) -> None:
    for test, error in list(tests.items())[:MOST_REPORTED]:
        print(f"{head}: {test}: {error}")
    if len(tests) > MOST_REPORTED:
        print(f"{head}: and {len(tests) - MOST_REPORTED} more")


def _read(path: pathlib.Path) -> dict[str, Any] | None:
    results: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return results


def _kill(process: subprocess.Popen[str], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _is_running(process: subprocess.Popen[str]) -> bool:
    """Whether the process or another one of its group runs."""
    process.poll()  # a process that is not reaped belongs to its group
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


def run_all(run: Run) -> None:
    """All stages. Those in the background have their limits at the same time: 72 minutes in all."""
    python = os.environ.get("PYTHON", "python3.11")
    demo = [python, "scripts/console.py", "README.md", "make demo"]
    # `make demo` creates .venv.
    environments = "until [ -e .venv/.tools ]; do sleep 1; done; make environments kubectl"
    run.begin("make environments kubectl", 15, ["bash", "-c", environments])
    without = ["KUBECONFIG", "KUBEBUILDER_ASSETS"]
    run.stage("README.md: make demo, without a cluster", 15, demo, without=without)
    if not (ROOT / ".venv" / ".installed").exists():
        print("Without a build, nothing else can run.", flush=True)
        run.stop()
        return
    run.wait("make environments kubectl")
    run.begin("make lint-rest", 10, ["make", "lint-rest"])
    run.stage("make build-tests lint-rust", 15, ["make", "--keep-going", "build-tests", "lint-rust"])
    run.wait("make lint-rest")
    if os.environ.get("KUBEBUILDER_ASSETS"):
        run.stage("README.md: make demo, on a control plane", 3, demo, without=["KUBECONFIG"])
    tests = ["test-rust", "test-bindings", "test-python", "test-embedded"]
    run.stage(
        "README.md: make test", 25, [python, "scripts/console.py", "README.md", "make test"], targets=tests
    )
    # The operators and the differential suite mostly wait for a control plane.
    run.begin("make operators", 10, ["make", "operators"], targets=["operators"])
    run.begin("make differential-part", 4, ["make", "differential-part"], after="make operators")
    folders = " ".join(["tests/units", *(f"tests/behaviours/{name}" for name in INTERPRETED)])
    newest = ["make", "test-newest", f"NEWEST_TESTS={folders}"]
    run.stage("make test-newest, a part", 10, newest, targets=["test-newest"])
    run.wait("make operators")
    run.wait("make differential-part")


def _join(thread: threading.Thread) -> None:
    """Wait for a stage. A signal that arrives just before a wait is handled after it: no wait is long."""
    while thread.is_alive():
        thread.join(0.5)


def _exit(*_: object) -> None:
    """End the run at the first SIGTERM; another one does not interrupt that."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(1)


def main() -> int:
    run = Run(ROOT, ROOT / "target" / "results")
    signal.signal(signal.SIGTERM, _exit)
    try:
        run_all(run)
        return run.finish()
    finally:
        run.stop()


if __name__ == "__main__":
    sys.exit(main())
