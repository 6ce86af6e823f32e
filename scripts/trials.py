"""What the trials of this folder have in common: a kind of objects to play with, and an operator in a process
of its own that answers questions. It must not know what is tried.
"""

import json
import os
import pathlib
import subprocess
import sys
from typing import IO, Any

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests" / "faults"))

import definitions
from definitions import LAST, PREFIX

__all__ = ["LAST", "PREFIX", "Patient", "definition"]

GROUP = "example.com"


def definition(kind: str, *, status: bool = False) -> dict[str, Any]:
    """A kind whose objects may have anything in them."""
    return definitions.definition(GROUP, kind, definitions.ANYTHING, status=status)


class Patient:
    """The process of an operator: a line of JSON for each line of its input, and its end when that ends."""

    def __init__(self, words: list[str], kubeconfig: pathlib.Path, log: IO[str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            env={**os.environ, "KUBECONFIG": str(kubeconfig)}, text=True,
        )  # fmt: skip
        self.place = pathlib.Path("/proc", str(self.process.pid))

    def ask(self) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def status(self, name: str) -> int:
        """What the system knows of it: kilobytes, or a number."""
        lines = (self.place / "status").read_text().splitlines()
        return int(dict(it.split(":", 1) for it in lines)[name].split()[0])

    def cpu(self) -> float:
        """The seconds that it has spent."""
        ticks = (self.place / "stat").read_text().rsplit(")", 1)[1].split()
        return (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")

    def forget_peak(self) -> None:
        (self.place / "clear_refs").write_text("5")

    def stop(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(60)
