"""Shared by `load.py` and `soak.py`: a CRD, and an operator process that reports its state on request."""

import json
import os
import pathlib
import subprocess
import sys
from typing import IO, Any

from tests.faults import crds
from tests.faults.crds import LAST, PREFIX

__all__ = ["LAST", "PREFIX", "OperatorProcess", "make_crd"]

GROUP = "example.com"


def make_crd(kind: str, *, status: bool = False) -> dict[str, Any]:
    """The CRD of a kind without a schema."""
    return crds.make_crd(GROUP, kind, crds.ANYTHING, status=status)


class OperatorProcess:
    """The process of an operator. It answers each line of its input with a line of JSON, and exits at its
    end."""

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
        """A field of /proc/PID/status, in kilobytes or as a number."""
        lines = (self.place / "status").read_text().splitlines()
        return int(dict(it.split(":", 1) for it in lines)[name].split()[0])

    def cpu(self) -> float:
        """The CPU time of the process, in seconds."""
        ticks = (self.place / "stat").read_text().rsplit(")", 1)[1].split()
        return (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")

    def forget_peak(self) -> None:
        (self.place / "clear_refs").write_text("5")

    def stop(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(60)
