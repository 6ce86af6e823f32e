"""The contestants: Kopf in some environment, or a native program with the same tasks. This module runs their
processes and reads their reports."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import Any

from benches.harness import processes

OPERATORS = pathlib.Path(__file__).resolve().parents[1] / "operators"


@dataclass(frozen=True)
class Contestant:
    """A program to measure. Kopf has the Python it is installed in; a peer is a program that obeys the same
    environment variables. The handlers of Kopf can be behind a decorator, and it can have more options."""

    name: str
    path: str
    native: bool = False
    decorated: bool = False
    options: tuple[str, ...] = ()

    def argv(self, operator: str) -> list[str]:
        """The command of an operator."""
        if self.native:
            return [self.path]
        command = [self.path, "-m", "kopf", "run", "-A", "--standalone", *self.options]
        return [*command, str(OPERATORS / f"{operator}.py")]


class Operator:
    """An operator while it runs. It reports by lines of JSON to a file: see `operators/reporting.py`."""

    def __init__(
        self, contestant: Contestant, operator: str, mode: str, kubeconfig: pathlib.Path, **variables: Any
    ) -> None:
        folder = kubeconfig.parent
        self._report = folder / f"{contestant.name}.{time.monotonic_ns()}.jsonl"
        self._report.touch()
        environment = {
            **os.environ,
            "KUBECONFIG": str(kubeconfig),
            "BENCH_OUT": str(self._report),
            "BENCH_MODE": mode,
            "BENCH_DECORATED": str(int(contestant.decorated)),
            **{f"BENCH_{key.upper()}": str(value) for key, value in variables.items()},
        }
        self._log = folder / f"{contestant.name}.log"
        with self._log.open("ab") as log:
            self.started = time.time()
            self._process = subprocess.Popen(
                contestant.argv(operator), env=environment, stdout=log, stderr=subprocess.STDOUT
            )
        self._memory = processes.MemorySampler(self._process.pid)

    def __enter__(self) -> Operator:
        return self

    def __exit__(self, *_: object) -> None:
        self._memory.stop()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def reports(self, what: str) -> list[dict[str, Any]]:
        """The lines it has reported so far."""
        lines = map(json.loads, self._report.read_text().splitlines())
        return [line for line in lines if line["what"] == what]

    def wait(self, what: str, limit: float = 240.0) -> dict[str, Any]:
        """The first report of the kind, when it is there."""
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            found = self.reports(what) if f'"{what}"' in self._report.read_text() else []
            if found:
                return found[0]
            if self._process.poll() is not None:
                tail = self._log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"The operator has exited with {self._process.returncode}:\n{tail}")
            time.sleep(0.02)
        raise RuntimeError(f"The operator has not reported {what!r} in {limit:g} seconds.")

    def cpu(self) -> float:
        """Seconds of CPU so far."""
        return processes.cpu(self.pid)

    def quiesce(self) -> float:
        """The same, when it has nothing to do any more."""
        return processes.quiesce(self.pid)

    def memory(self) -> processes.Memory:
        """Private memory, in MiB."""
        return self._memory.read()

    def switches(self) -> int:
        """How many times its threads have gone to sleep so far."""
        return processes.switches(self.pid)
