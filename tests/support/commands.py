"""Commands of the command line in processes, whose output is read as it comes."""

import os
import pathlib
import queue
import re
import signal
import subprocess
import sys
import threading

WIDGETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.behaviours.example.com}
spec:
  group: behaviours.example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: behaviours.example.com/v1
kind: Widget
metadata: {name: first}
spec: {size: 1}
"""


def environment(folder: pathlib.Path, **more: str) -> dict[str, str]:
    """The variables of a command: no cluster, no options, and the folder as the home."""
    known = {
        name: value
        for name, value in os.environ.items()
        if name != "KUBECONFIG" and not name.startswith("KOPF_")
    }
    return {**known, "HOME": str(folder), "COLUMNS": "200", **more}


def kopf(folder: pathlib.Path, *args: str, **more: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in the folder until it ends."""
    return subprocess.run(
        [sys.executable, "-m", "kopf", *args],
        cwd=folder,
        env=environment(folder, **more),
        capture_output=True,
        text=True,
        timeout=60,
    )


def unwrapped(text: str) -> str:
    """The text in one line."""
    return " ".join(text.split())


class Command:
    """A running command, whose output is read as it comes."""

    def __init__(self, folder: pathlib.Path, *args: str, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kopf", *args],
            cwd=folder,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.seen: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def until(self, pattern: str) -> str:
        """Wait for a line with this pattern."""
        while True:
            try:
                line = self.lines.get(timeout=60)
            except queue.Empty:
                line = None
            assert line is not None, f"{pattern!r} has not come:\n{''.join(self.seen)}"
            self.seen.append(line)
            if re.search(pattern, line):
                return line

    def stop(self, signum: int = signal.SIGTERM) -> int:
        """Send a signal; the exit code."""
        self.process.send_signal(signum)
        try:
            return self.process.wait(30)
        finally:
            self.close()

    def close(self) -> None:
        """End the process if it still runs, and read its output to the end."""
        if self.process.poll() is None:
            self.process.terminate()  # the operator is its child, and holds the pipe
            self.process.wait(30)
        self.reader.join(10)
        if self.process.stdout is not None:
            self.process.stdout.close()
