"""Operators under test as real processes: started, watched through their output, stopped or killed.

An operator reports its handlers' calls as lines in a file (see `CALLS`). They are written before the handler
continues, and they survive a killed process. A line on the standard output announces new calls; logs are on
the standard error. Threads read both streams, so waiting never needs a sleep.
"""

import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# Written next to the handlers as `calls.py`. Each call is a single write, so lines stay complete on kills.
NEWS = "CALL"
CALLS = '''
"""Reports every call of a handler to the test."""
import json
import os


FILE = os.open(os.environ["CALLS_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def called(handler, **details):
    os.write(FILE, (json.dumps({"handler": handler, **details}, default=repr) + "\\n").encode())
    os.write(1, b"CALL\\n")
'''

# The default delays between repeated requests add up to a minute; the tests do not have it.
HASTY = """
import kopf


@kopf.on.startup()
def haste(settings, **_):
    settings.networking.error_backoffs = [0.1, 0.1]
"""


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of a handler, as it has reported it."""

    handler: str
    details: Mapping[str, Any]


class Operator:
    """One run of an operator's process."""

    def __init__(self, command: list[str], folder: pathlib.Path, environment: Mapping[str, str]) -> None:
        self.lines: list[str] = []
        self._file = pathlib.Path(environment["CALLS_FILE"])
        self._changed = threading.Condition()
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environment),
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (self.process.stdout, self.process.stderr)
        ]
        for reader in self._readers:
            reader.start()

    @property
    def log(self) -> str:
        """Everything written so far, calls excluded."""
        with self._changed:
            return "\n".join(self.lines)

    @property
    def calls(self) -> list[Call]:
        """All calls of handlers which have begun by now, in order."""
        if not self._file.exists():
            return []
        records = [json.loads(line) for line in self._file.read_text().splitlines()]
        return [Call(record.pop("handler"), record) for record in records]

    def called(self, handler: str) -> list[Call]:
        """All calls of that handler which have begun by now."""
        return [call for call in self.calls if call.handler == handler]

    def wait_for_log(self, pattern: str, *, timeout: float = 60, count: int = 1) -> None:
        """Wait until that many lines match the regular expression."""
        self._wait(
            lambda: sum(1 for line in self.lines if re.search(pattern, line)) >= count,
            f"{count} line(s) like {pattern!r}",
            timeout,
        )

    def wait_for_call(self, handler: str, *, count: int = 1, timeout: float = 60) -> Call:
        """Wait until the handler has been called that many times; the last of those calls is returned."""
        self._wait(lambda: len(self.called(handler)) >= count, f"{count} call(s) of {handler}", timeout)
        return self.called(handler)[count - 1]

    def wait_for_exit(self, *, timeout: float = 60) -> int:
        """Wait until the process ends, and all its output is read; the exit code is returned."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"the operator did not exit in {timeout} s; its output:\n{self.log}"
            ) from None
        for reader in self._readers:
            reader.join(timeout=60)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        return code

    def check_alive(self) -> None:
        if self.process.poll() is not None:
            self.wait_for_exit()
            raise AssertionError(
                f"the operator has exited with {self.process.returncode}; its output:\n{self.log}"
            )

    def stop(self, signum: int = signal.SIGTERM) -> int:
        """Ask the operator to stop, and wait until it does."""
        if self.process.poll() is None:
            self.process.send_signal(signum)
        return self.wait_for_exit()

    def kill(self) -> None:
        """End the process with no chance to clean up anything, as a lost node or the OOM killer would."""
        self.process.kill()
        self.wait_for_exit()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.wait_for_exit()

    def _wait(self, condition: Callable[[], bool], what: str, timeout: float) -> None:
        until = time.monotonic() + timeout
        with self._changed:
            while not condition():
                remains = until - time.monotonic()
                if remains <= 0:
                    raise AssertionError(f"no {what} in {timeout} s; the output:\n" + "\n".join(self.lines))
                if self.process.poll() is not None and not any(reader.is_alive() for reader in self._readers):
                    code = self.process.returncode
                    raise AssertionError(
                        f"no {what} before the exit with {code}; the output:\n" + "\n".join(self.lines)
                    )
                self._changed.wait(min(remains, 0.5))

    def _read(self, stream: Iterator[str]) -> None:
        for line in stream:
            with self._changed:
                if line.rstrip() != NEWS:
                    self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()


class Launcher:
    """Starts operators with one interpreter, in one folder, as one user of the cluster."""

    def __init__(self, python: str, folder: pathlib.Path, kubeconfig: pathlib.Path, namespace: str) -> None:
        self.python = python
        self.folder = folder
        self.kubeconfig = kubeconfig
        self.namespace = namespace
        self.started: list[Operator] = []
        (folder / "calls.py").write_text(CALLS)

    def write(self, code: str, name: str = "handlers.py") -> str:
        """Write a file of handlers as it is."""
        (self.folder / name).write_text(textwrap.dedent(code))
        return name

    def __call__(
        self,
        code: str | None = None,
        *args: str,
        scope: tuple[str, ...] | None = None,
        files: tuple[str, ...] | None = None,
        python: str | None = None,
        kubeconfig: pathlib.Path | bool | None = True,
        environment: Mapping[str, str] | None = None,
        options: tuple[str, ...] = ("--verbose",),
        script: str | None = None,
    ) -> Operator:
        """Start an operator on the given handlers, by default for this test's namespace only.

        A script is run by itself, instead of the command line.
        """
        if code is not None:
            self.write(HASTY + textwrap.dedent(code))
        if files is None:
            files = ("handlers.py",) if (self.folder / "handlers.py").exists() else ()
        where = ("-n", self.namespace) if scope is None else scope
        command = [python or self.python, "-m", "kopf", "run", *options, *where, *args, *files]
        if script is not None:
            command = [python or self.python, script]
        env = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("KOPF_", "KUBE", "PYTHON", "COVERAGE"))
        }
        env |= {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(self.folder)}
        env |= {"PYTHONFAULTHANDLER": "1"}  # a crash shows where the threads are
        if kubeconfig:
            env["KUBECONFIG"] = str(self.kubeconfig if kubeconfig is True else kubeconfig)
        env["CALLS_FILE"] = str(self.folder / f"calls-{len(self.started)}.jsonl")
        operator = Operator(command, self.folder, env | dict(environment or {}))
        self.started.append(operator)
        return operator

    def close(self) -> None:
        for operator in self.started:
            operator.close()
