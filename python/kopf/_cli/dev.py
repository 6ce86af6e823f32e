"""Commands `kopf dev` and `kopf cluster`: an embedded cluster for development.

The operator of `kopf dev` is a child process. It is restarted when its files change, so that its code is
always loaded from the beginning.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import queue
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Collection, Iterator, Mapping
from typing import IO, Any, TextIO

import click
import yaml

from kopf._cli import autoreload
from kopf._cli.activity_log import ActivityEntry, ActivityLog
from kopf._cli.output import Output, document_output
from kopf._cli.published_kubeconfig import published_kubeconfig
from kopf._testing import snapshot
from kopf._testing.client import ApiError
from kopf._testing.cluster import Cluster, kubeconfig_environment
from kopf._testing.discovery import UnknownKindError
from kopf._testing.manifests import apply_order, metadata_of, read

OPERATOR = "kopf._cli.dev_operator"

STDERR = 2  # the descriptor: the streams of tests have none
POLL_INTERVAL = 0.3  # seconds between looks at the operator
STOP_TIMEOUT = 15.0
STOP_POLL_INTERVAL = 0.1

# Errors of one object of a manifest: it cannot be applied, but the others can.
INAPPLICABLE = (ApiError, LookupError, TimeoutError, TypeError, ValueError)

_COLOURS = {"DEBUG": "bright_black", "INFO": "green", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}
_LEVEL = re.compile(r"\[(DEBUG|INFO|WARNING|ERROR|CRITICAL)\s*\]")


def serve(kubeconfig: pathlib.Path | None, port: int, *, controllers: bool, output: Output) -> None:
    """Run the server until Ctrl+C or SIGTERM."""
    with (
        document_output(output) as print_document,
        _stop_signals() as stop,
        _running_cluster(Cluster(port=port, controllers=controllers)) as cluster,
        published_kubeconfig(cluster, kubeconfig) as path,
    ):
        print_document(_describe_server(cluster, path))
        click.echo(f"The cluster is at {cluster.url}; stop it with Ctrl+C. Try:")
        for command in _example_commands(path, "namespaces"):
            click.echo(f"  {command}")
        while not stop.wait(timeout=1):
            pass  # Python would miss a signal right before an endless wait


def develop(
    paths: Collection[str],
    *,
    modules: Collection[str] = (),
    manifests: Collection[pathlib.Path],
    reload: bool,
    state_file: pathlib.Path | None,
    kubeconfig: pathlib.Path | None,
    port: int,
    options: Collection[str],
    output: Output,
) -> int:
    """Run the server and the operator until Ctrl+C or SIGTERM; the exit code of the operator, if it ends
    itself.
    """
    with contextlib.ExitStack() as stack:
        print_document = stack.enter_context(document_output(output))
        stop = stack.enter_context(_stop_signals())
        cluster = stack.enter_context(_running_cluster(Cluster(port=port, controllers=True)))
        path = stack.enter_context(published_kubeconfig(cluster, kubeconfig))
        unrestored = []
        if state_file is not None and state_file.exists():
            unrestored = _load(cluster, state_file)
        objects = _Manifests(cluster, stop)
        try:
            for manifest in manifests:
                objects.apply(manifest)
            if stop.signals:
                return 0
            print_document(_describe_server(cluster, path))
            _print(f"The cluster is at {cluster.url}; stop everything with Ctrl+C. Try:")
            for command in _example_commands(path, _example_resource(manifests)):
                _print(f"  {command}")
            with contextlib.nullcontext() if "--quiet" in options else ActivityLog(cluster, _print_entry):
                arguments = [*options, *(f"--module={name}" for name in modules), *paths]
                operator = _Supervisor(arguments, cluster, stdout=STDERR if output == "json" else None)
                return operator.run(stop, objects, _create_watcher(paths, manifests) if reload else None)
        finally:
            if state_file is not None:
                _save(cluster, state_file, unrestored)


@contextlib.contextmanager
def _running_cluster(cluster: Cluster) -> Iterator[Cluster]:
    try:
        cluster.start()
    except OSError as error:
        advice = "Choose another --port, or leave it out for a free one."
        raise click.ClickException(f"{error}. {advice}") from error
    try:
        yield cluster
    finally:
        cluster.stop()


def _create_watcher(paths: Collection[str], manifests: Collection[pathlib.Path]) -> autoreload.FileWatcher:
    """Watch the files of the operator, and the files in their folders, which it can import."""
    folders = {pathlib.Path(path).resolve().parent for path in paths} or {pathlib.Path.cwd()}
    return autoreload.watch_files(
        folders, lambda: [item for manifest in manifests for item in _manifest_files(manifest)]
    )


class StopSignals:
    """Signals to stop: the first one stops gracefully, a second Ctrl+C at once."""

    def __init__(self) -> None:
        super().__init__()
        self.signals: list[int] = []
        # Handlers of signals run in the middle of `wait()`, which can hold the lock of an event then.
        self._wake_ups: queue.SimpleQueue[None] = queue.SimpleQueue()

    def receive(self, signum: int, frame: types.FrameType | None) -> None:
        """The handler of the signals."""
        self.signals.append(signum)
        self._wake_ups.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        """Whether a signal has been received; if not, wait for one until the timeout (seconds)."""
        if not self.signals:
            with contextlib.suppress(queue.Empty):
                self._wake_ups.get(timeout=timeout)
        return bool(self.signals)


class _Manifests:
    """The objects of the manifests: those whose kind is not served yet are applied when its CRD comes."""

    def __init__(self, cluster: Cluster, stop: StopSignals) -> None:
        super().__init__()
        self._cluster = cluster
        self._stop = stop  # after a signal, nothing is applied: with webhooks, each object can take long
        self._waiting: list[tuple[pathlib.Path, Mapping[str, Any]]] = []
        self._version = 0
        self._known: list[pathlib.Path] = []

    def apply(self, manifest: pathlib.Path) -> None:
        """Apply all objects of the file or folder that can be applied."""
        if manifest not in self._known:
            self._known.append(manifest)
        self._waiting = [item for item in self._waiting if item[0] != manifest]
        try:
            bodies = sorted(read(manifest), key=apply_order)
        except (OSError, UnicodeDecodeError, yaml.YAMLError, AttributeError, TypeError) as error:
            _print(f"{manifest} cannot be read: {error}")
            return
        for body in itertools.takewhile(self._goes_on, bodies):
            try:
                self._apply(body)
            except UnknownKindError as error:
                _print(f"{manifest}: {error} {_describe(body)} is applied when the CRD comes.")
                self._waiting.append((manifest, body))
            except INAPPLICABLE as error:
                _print(f"{manifest}: {_describe(body)} cannot be applied: {error}")

    def reapply(self, changed: Collection[pathlib.Path]) -> None:
        """Apply those manifests again that have changed."""
        for manifest in self._known:
            if {manifest.resolve(), *(item.resolve() for item in _manifest_files(manifest))}.intersection(
                item.resolve() for item in changed
            ):
                self.apply(manifest)

    def retry(self) -> None:
        """Apply the objects that wait for their CRDs, if anything has changed in the cluster."""
        if not self._waiting or self._cluster.version == self._version:
            return
        self._version = self._cluster.version
        waiting, self._waiting = self._waiting, []
        for manifest, body in itertools.takewhile(self._goes_on, waiting):
            try:
                self._apply(body)
            except UnknownKindError:
                self._waiting.append((manifest, body))
            except INAPPLICABLE as error:
                _print(f"{manifest}: {_describe(body)} cannot be applied: {error}")

    def _goes_on(self, _: object) -> bool:
        return not self._stop.signals

    def _apply(self, body: Mapping[str, Any]) -> None:
        for applied in self._cluster.apply(body):
            _print(f"Applied: {_describe(applied)}.")


def _describe_server(cluster: Cluster, kubeconfig: pathlib.Path) -> dict[str, str]:
    """The document of `-o json`."""
    return {"server": cluster.url, "kubeconfig": str(kubeconfig.absolute())}


def _describe(body: Mapping[str, Any]) -> str:
    return f"{body.get('kind')} {metadata_of(body).get('name')}"


class _Supervisor:
    """Keeps one operator running: the one of the newest files."""

    def __init__(self, arguments: Collection[str], cluster: Cluster, *, stdout: int | None) -> None:
        super().__init__()
        self._arguments = arguments
        self._cluster = cluster
        self._stdout = stdout
        # The operators read from it until this process ends, however it ends.
        self._reader, self._writer = os.pipe()

    def run(self, stop: StopSignals, objects: _Manifests, watcher: autoreload.FileWatcher | None) -> int:
        """Run until it is stopped; the exit code. Without a watch, also until the operator ends itself."""
        operator = self._start()
        reported = False
        try:
            while not stop.wait(POLL_INTERVAL):
                objects.retry()
                code = operator.poll()
                if code is not None and watcher is None:
                    return _exit_code(code)
                if code is not None and not reported:
                    _print(
                        f"The operator has ended (exit code {_exit_code(code)}). Waiting for changed files."
                    )
                    reported = True
                if watcher is not None and (changed := watcher.changed()):
                    names = ", ".join(sorted(map(_display_path, changed)))
                    _print(f"{names}: changed. The operator is started again.")
                    _stop_operator(operator, stop)
                    if stop.signals:
                        break
                    # The next operator also reads what was saved while the last one was stopping.
                    objects.reapply(changed | watcher.changed(at_once=True))
                    operator = self._start()
                    reported = False
        finally:
            code = _stop_operator(operator, stop)
            if watcher is not None:
                watcher.close()
            os.close(self._reader)
            os.close(self._writer)
        # It was stopped before it could listen to signals.
        early = len(stop.signals) == 1 and code == -signal.SIGTERM
        return 0 if early else _exit_code(code)

    def _start(self) -> subprocess.Popen[str]:
        coloured = _is_coloured(sys.stderr)
        operator = subprocess.Popen(
            [sys.executable, "-m", OPERATOR, str(self._reader), "run", *self._arguments],
            pass_fds=[self._reader],
            env=_environment(self._cluster),
            stdin=subprocess.DEVNULL,
            stdout=self._stdout,
            stderr=subprocess.PIPE if coloured else None,
            text=True,
            errors="replace",
            # Ctrl+C is for us: we stop the operator, and in the right order.
            start_new_session=True,
        )
        if operator.stderr is not None:
            threading.Thread(target=_forward_log, args=(operator.stderr,), daemon=True).start()
        return operator


def _stop_operator(operator: subprocess.Popen[str], stop: StopSignals) -> int:
    """Stop the operator. Return its exit code as `subprocess` does.

    After Ctrl+C there is no timeout: each further Ctrl+C is passed on. Otherwise, the operator is killed
    after `STOP_TIMEOUT`.
    """
    # The first signal is not passed on, even if it comes while the operator stops already.
    passed = 1
    if operator.poll() is None:
        # SIGINT raises KeyboardInterrupt in an operator that still imports its modules.
        operator.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT
    while True:
        try:
            return operator.wait(STOP_POLL_INTERVAL)
        except subprocess.TimeoutExpired:
            pass
        received = list(stop.signals)
        if signal.SIGINT in received[passed:]:
            operator.send_signal(signal.SIGINT)
        passed = max(passed, len(received))
        if signal.SIGINT not in received and time.monotonic() > deadline:
            _print(f"The operator has not stopped in {STOP_TIMEOUT:.0f} seconds: it is killed.")
            operator.kill()
            operator.wait()
            return 1


def _exit_code(code: int) -> int:
    """The code as shells have it: more than 128 if the process was ended by a signal."""
    return code if code >= 0 else 128 - code


def _display_path(path: pathlib.Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(pathlib.Path.cwd()) else str(path)


def _forward_log(lines: IO[str]) -> None:
    for line in lines:
        level = _LEVEL.search(line)
        colour = _COLOURS[level.group(1)] if level else None
        text = click.style(line, fg=colour, reset=True) if colour else line
        click.echo(text, nl=False, err=True, color=True)


def _environment(cluster: Cluster) -> dict[str, str]:
    # The arguments of the operator have all its options. Others would be for a real cluster.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("KOPF_RUN_")}
    variables = {**inherited, "PYTHONUNBUFFERED": "1", **kubeconfig_environment(cluster)}
    return {name: value for name, value in variables.items() if value is not None}


def _load(cluster: Cluster, path: pathlib.Path) -> list[snapshot.Unrestored]:
    try:
        restored = snapshot.load(cluster, path)
    except (OSError, snapshot.UnreadableError) as error:
        problem = error.strerror if isinstance(error, OSError) else error
        raise click.ClickException(
            f"The objects in {path} cannot be read: {problem}. Use a file of an earlier run, or a new name."
        ) from error
    _print(f"{restored.total} objects are back from {path}.")
    for body, problem in restored.unrestored:
        _print(f"{_describe(body)} cannot be restored, and stays in {path}: {problem}")
    return restored.unrestored


def _save(cluster: Cluster, path: pathlib.Path, unrestored: Collection[snapshot.Unrestored]) -> None:
    try:
        saved = snapshot.save(cluster, path, unrestored)
    except OSError as error:
        raise click.ClickException(
            f"The objects cannot be kept in {path}: {error.strerror or error}. The file is as it was before."
        ) from error
    _print(f"{saved.total} objects are kept in {path}.")
    for problem in saved.problems:
        _print(problem)


def _example_resource(manifests: Collection[pathlib.Path]) -> str:
    """Something of the user's own to look at."""
    for manifest in manifests:
        for file in _manifest_files(manifest):
            found = re.search(r"\bplural:\s*([\w.-]+)", _read_text(file))
            if found:
                return found.group(1)
    return "namespaces"


def _manifest_files(manifest: pathlib.Path) -> list[pathlib.Path]:
    return sorted(manifest.iterdir()) if manifest.is_dir() else [manifest]


def _read_text(file: pathlib.Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _example_commands(path: pathlib.Path, resource: str) -> list[str]:
    """Commands to paste into another terminal."""
    return [f"export KUBECONFIG={shlex.quote(str(path.absolute()))}", f"kubectl get {resource}"]


@contextlib.contextmanager
def _stop_signals() -> Iterator[StopSignals]:
    """Collects Ctrl+C, SIGTERM, and the end of the terminal, for as long as the block lasts."""
    stop = StopSignals()
    # Ignored signals stay ignored: shells start jobs in the background so, and `nohup` does it.
    optional = (signal.SIGINT, signal.SIGHUP)
    received = [signum for signum in optional if signal.getsignal(signum) is not signal.SIG_IGN]
    previous = {signum: signal.signal(signum, stop.receive) for signum in (*received, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)


def _is_coloured(stream: TextIO) -> bool:
    """Whether lines have colours: in terminals, with FORCE_COLOR also elsewhere, and never with NO_COLOR."""
    return "NO_COLOR" not in os.environ and (stream.isatty() or "FORCE_COLOR" in os.environ)


def _print_entry(line: ActivityEntry) -> None:
    # To the same stream as the log, so that the order of both is kept where they go to the same place.
    coloured = _is_coloured(sys.stderr)
    text = click.style(line.text, fg=line.colour) if coloured else line.text
    click.echo(text, err=True, color=coloured)


def _print(text: str) -> None:
    coloured = _is_coloured(sys.stdout)
    click.echo(click.style(text, fg="cyan") if coloured else text, color=coloured)
