"""The process of the operator under test: starts, stops and kills, and the protocol over its socket.
`fault_harness` evaluates the reports.
"""

import json
import os
import pathlib
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

SCRIPT = pathlib.Path(__file__).with_name("tested_operator.py")
TIMEOUT = 40.0
VERBOSE = ["--verbose"] if os.environ.get("KOPF_FAULTS_VERBOSE") else []


class OperatorProcess:
    """One process after another, each with the same handlers."""

    def __init__(
        self,
        python: str,
        arguments: list[str],
        options: dict[str, Any],
        environment: dict[str, str],
        called: Callable[[list[Any]], None],
        folder: pathlib.Path,
    ) -> None:
        self._command = [python, "-m", "kopf", "run", "--standalone", *VERBOSE, *arguments, str(SCRIPT)]
        self._options, self._environment, self._called = options, environment, called
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._loaded = threading.Event()
        self._obeyed = threading.Event()
        self._log = folder / "operator.log"

    def start(self) -> None:
        ours, theirs = socket.socketpair()
        environment = {key: it for key, it in os.environ.items() if not key.startswith(("KOPF_", "KUBE"))}
        environment |= {"PARCELS_OPTIONS": json.dumps(self._options), "PARCELS_SOCKET": str(theirs.fileno())}
        # The backtraces of panics would fill the log.
        environment |= self._environment | {"RUST_BACKTRACE": "0"}
        # The sources of this repository are importable for our interpreter only.
        folders = [path for path in sys.path if pathlib.Path(path, "kopf").is_dir()]
        sources = [path for path in folders if "site-packages" not in path]
        if self._command[0] == sys.executable and sources:
            environment["PYTHONPATH"] = os.pathsep.join(sources)
        self._loaded = threading.Event()
        with theirs, self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
            )
        self._socket = ours
        threading.Thread(target=self._listen, args=(ours, self._loaded), daemon=True).start()
        if not self._loaded.wait(TIMEOUT):
            raise AssertionError(f"The operator has not been loaded:\n{self.log}")

    def _listen(self, peer: socket.socket, loaded: threading.Event) -> None:
        with peer.makefile("r") as lines:
            for line in lines:
                news = json.loads(line)
                if "call" in news:
                    self._called(news["call"])
                if "look" in news:
                    self._answers.put(news["look"])
                if "ordered" in news:
                    self._obeyed.set()
                if "loaded" in news:
                    loaded.set()

    def order(self, **what: Any) -> None:
        """Set something in the process, and in those after it."""
        self._options.update(what)
        self._send(what)

    def panic(self, step: str, name: str | None = None, *, times: int = 1) -> None:
        """Make tasks of the engine panic at their next steps of this sort (feature `testing`)."""
        self._obeyed.clear()
        self._send({"panic": step, "name": name, "times": times})
        if not self._obeyed.wait(TIMEOUT):
            raise AssertionError(f"The operator does not react:\n{self.log}")

    def exit_code(self) -> int:
        """Wait for the end of a process that ends by itself."""
        if self._process is None:
            raise AssertionError("There is no process.")
        try:
            return self._process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"The operator has not ended:\n{self.log}") from None
        finally:
            if self._socket is not None:
                self._socket.close()

    def look(self) -> dict[str, Any]:
        """The state of the process; empty if it does not run."""
        if not self.running:
            return {"daemons": {}, "index": [], "memos": [], "logins": 0, "threads": 0}
        while not self._answers.empty():
            self._answers.get()
        self._send({"look": True})
        return self._answers.get(timeout=TIMEOUT)

    def _send(self, what: dict[str, Any]) -> None:
        if self._socket is not None and self.running:
            self._socket.sendall(json.dumps(what).encode() + b"\n")

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """The end of all that was logged."""
        return self._log.read_text(errors="replace")[-12_000:] if self._log.exists() else ""

    def stop(self, signum: int = signal.SIGTERM) -> int | None:
        """Send the signal, and wait; the exit code."""
        if self._process is None:
            return None
        if self.running:
            self._process.send_signal(signum)
        try:
            return self._process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"The operator has not stopped:\n{self.log}") from None
        finally:
            self._process = None
            if self._socket is not None:
                self._socket.close()
