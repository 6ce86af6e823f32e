"""The process of an operator: start, stop, kill."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

EXIT_TIMEOUT = 20
T = TypeVar("T")


class OperatorProcess:
    """An operator in a separate session; its output is appended to a log file."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], cwd: pathlib.Path, log: pathlib.Path
    ) -> None:
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command,
                env=env,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def code(self) -> int | None:
        """The exit code, or None if the process has not been seen to exit."""
        return self._process.returncode

    def stop(self, timeout: float = EXIT_TIMEOUT) -> int | str:
        """Send SIGTERM, and return the exit code, or "stuck" if the process had to be killed."""
        if self.is_running:
            os.kill(self._process.pid, signal.SIGTERM)
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            return "stuck"

    def kill(self) -> int:
        if self.is_running:
            os.kill(self._process.pid, signal.SIGKILL)
        return self._process.wait(10)


def poll(condition: Callable[[], T], timeout: float, step: float = 0.05) -> T:
    """Call `condition` until it returns a true value or the time is over; return the last value."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value or time.monotonic() > deadline:
            return value
        time.sleep(step)
