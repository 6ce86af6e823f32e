"""The costs of processes as reported by the kernel: CPU time, memory, context switches."""

from __future__ import annotations

import os
import pathlib
import re
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

QUIET = 0.011
"""Seconds of CPU in half a second which are as good as none."""


class Memory(NamedTuple):
    """Private memory in MiB: pages of files are left out, since they belong to the system's cache."""

    now: float
    peak: float


def cpu(pid: int) -> float:
    """Seconds of user and system time so far."""
    # The CPU clock of the process, as in clock_getcpuclockid(): /proc has a resolution of 10 ms only.
    return time.clock_gettime((~pid << 3) | 2)


def private_memory(pid: int) -> float:
    """The anonymous and shared memory of the process that is resident now, in MiB."""
    status = _status(pid)
    return (status("RssAnon") + status("RssShmem")) / 1024


class MemorySampler:
    """Samples the private memory of a process: the kernel records a peak only of all resident pages."""

    def __init__(self, pid: int, interval: float = 0.02) -> None:
        self._pid = pid
        self._interval = interval
        self._peak = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory sampler", daemon=True)
        self._thread.start()

    def read(self) -> Memory:
        """The memory now, and the most of all samples."""
        now = private_memory(self._pid)
        self._peak = max(self._peak, now)
        return Memory(now, self._peak)

    def stop(self) -> None:
        """End the samples; nothing happens if the process has exited."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval):
            try:
                self._peak = max(self._peak, private_memory(self._pid))
            except (OSError, RuntimeError):
                return  # the process has exited


def switches(pid: int) -> int:
    """How many times its threads have gone to sleep so far."""
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(_status(pid, task.name)("voluntary_ctxt_switches") for task in tasks)


def _status(pid: int, thread: str | None = None) -> Callable[[str], int]:
    path = f"/proc/{pid}/status" if thread is None else f"/proc/{pid}/task/{thread}/status"
    text = pathlib.Path(path).read_text()

    def value(key: str) -> int:
        found = re.search(rf"^{key}:\s+(\d+)", text, re.MULTILINE)
        if found is None:
            raise RuntimeError(f"There is no {key} in {path}.")
        return int(found[1])

    return value


def quiesce(pid: int, limit: float = 60.0) -> float:
    """Wait until the process has nothing to do; return its seconds of CPU so far."""
    deadline = time.monotonic() + limit
    last = cpu(pid)
    while time.monotonic() < deadline:
        time.sleep(0.5)
        now = cpu(pid)
        if now - last <= QUIET:
            return now
        last = now
    return last


def run(argv: Sequence[str], times: int = 5) -> float:
    """Run a command to its end several times; return the median of its seconds of CPU."""

    def once() -> float:
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{argv} has exited with {process.returncode}.")
        return usage.ru_utime + usage.ru_stime

    return statistics.median(once() for _ in range(times))
