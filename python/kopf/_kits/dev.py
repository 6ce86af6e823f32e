"""`kopf dev` and `kopf cluster`: a cluster in memory for a person at a terminal. It owns what is shown, and
when the operator is started again; the operator itself is another process, so that its code is always loaded
afresh.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import threading
import types
from collections.abc import Collection, Iterator
from typing import IO

import click
import yaml

from kopf._kits.clusters import state
from kopf._kits.clusters.client import Refused
from kopf._kits.clusters.cluster import Cluster
from kopf._kits.story import Line, Teller

LOOK_EVERY = 0.3  # seconds between looks at the files
STOP_WITHIN = 15.0

_COLOURS = {"DEBUG": "bright_black", "INFO": "green", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}
_LEVEL = re.compile(r"\[(DEBUG|INFO|WARNING|ERROR|CRITICAL)\s*\]")


def serve(kubeconfig: pathlib.Path | None, port: int, *, controllers: bool) -> None:
    """Run the server until Ctrl+C or SIGTERM."""
    with _stopper() as stop, Cluster(port=port, controllers=controllers) as cluster:
        path = _publish(cluster, kubeconfig)
        click.echo(f"The cluster is at {cluster.url}; stop it with Ctrl+C. Try:")
        click.echo(f"  kubectl --kubeconfig {shlex.quote(str(path))} get namespaces")
        try:
            stop.wait()
        finally:
            _withdraw(path, kubeconfig)


def develop(
    paths: Collection[str],
    *,
    manifests: Collection[pathlib.Path],
    reload: bool,
    state_file: pathlib.Path | None,
    kubeconfig: pathlib.Path | None,
    port: int,
    options: Collection[str],
) -> int:
    """Run the server and the operator until Ctrl+C or SIGTERM; the exit code of the operator, if it ends
    itself.
    """
    with _stopper() as stop, Cluster(port=port, controllers=True) as cluster:
        path = _publish(cluster, kubeconfig)
        if state_file is not None and state_file.exists():
            _say(f"{state.load(cluster, state_file)} objects are back from {state_file}.")
        for manifest in manifests:
            _apply(cluster, manifest)
        _say(f"The cluster is at {cluster.url}; stop everything with Ctrl+C. Try:")
        _say(f"  kubectl --kubeconfig {shlex.quote(str(path))} get {_sample(manifests)}")
        try:
            with contextlib.nullcontext() if "--quiet" in options else Teller(cluster, _say_line):
                return _Supervisor(paths, manifests, cluster, reload=reload, options=options).run(stop)
        finally:
            if state_file is not None:
                _say(f"{state.save(cluster, state_file)} objects are kept in {state_file}.")
            _withdraw(path, kubeconfig)


class _Supervisor:
    """Keeps one operator running: the one of the newest files."""

    def __init__(
        self,
        paths: Collection[str],
        manifests: Collection[pathlib.Path],
        cluster: Cluster,
        *,
        reload: bool,
        options: Collection[str],
    ) -> None:
        super().__init__()
        self._paths = paths
        self._manifests = manifests
        self._cluster = cluster
        self._reload = reload
        self._options = options

    def run(self, stop: threading.Event) -> int:
        files = self._files()
        operator = self._start()
        try:
            while not stop.wait(LOOK_EVERY):
                code = operator.poll()
                if code is not None and not self._reload:
                    return code
                if self._reload and files != (now := self._files()):
                    changed = {path for path, _ in files ^ now}
                    _say(f"{', '.join(sorted(map(str, changed)))}: changed. The operator is started again.")
                    files = now
                    _stop(operator)
                    for manifest in self._manifests:
                        if changed & {manifest, *_texts_of(manifest)}:
                            _apply(self._cluster, manifest)
                    operator = self._start()
        finally:
            code = _stop(operator)
        return 0 if stop.is_set() and code in (0, -signal.SIGTERM) else code

    def _start(self) -> subprocess.Popen[str]:
        coloured = sys.stderr.isatty() and "NO_COLOR" not in os.environ
        operator = subprocess.Popen(
            [sys.executable, "-m", "kopf", "run", "--all-namespaces", *self._options, *self._paths],
            env=os.environ | {"KUBECONFIG": str(self._cluster.kubeconfig), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE if coloured else None,
            text=True,
            errors="replace",
            # Ctrl+C is for us: we stop the operator, and in the right order.
            start_new_session=True,
        )
        if operator.stderr is not None:
            threading.Thread(target=_relay, args=(operator.stderr,), daemon=True).start()
        return operator

    def _files(self) -> set[tuple[pathlib.Path, int]]:
        """What is loaded, with its neighbours that may be imported, and when it was changed."""
        if not self._reload:
            return set()
        found: set[tuple[pathlib.Path, int]] = set()
        folders = {pathlib.Path(path).resolve().parent for path in self._paths}
        modules = [it for folder in folders for it in folder.rglob("*.py")]
        for path in modules + [it for manifest in self._manifests for it in _texts_of(manifest)]:
            with contextlib.suppress(OSError):  # it has vanished meanwhile
                found.add((path, path.stat().st_mtime_ns))
        return found


def _stop(operator: subprocess.Popen[str]) -> int:
    if operator.poll() is None:
        operator.send_signal(signal.SIGTERM)
    try:
        return operator.wait(STOP_WITHIN)
    except subprocess.TimeoutExpired:
        _say(f"The operator has not stopped in {STOP_WITHIN} seconds: it is killed.")
        operator.kill()
        return operator.wait()


def _relay(lines: IO[str]) -> None:
    for line in lines:
        level = _LEVEL.search(line)
        colour = _COLOURS[level.group(1)] if level else None
        click.echo(click.style(line, fg=colour, reset=True) if colour else line, nl=False, err=True)


def _apply(cluster: Cluster, manifest: pathlib.Path) -> None:
    try:
        for body in cluster.apply(manifest):
            _say(f"Applied: {body['kind']} {body['metadata']['name']}.")
    except (Refused, LookupError, KeyError, TypeError, yaml.YAMLError) as error:
        _say(f"{manifest} cannot be applied: {error}")


def _sample(manifests: Collection[pathlib.Path]) -> str:
    """Something of the user's own to look at."""
    for manifest in manifests:
        for file in _texts_of(manifest):
            found = re.search(r"\bplural:\s*([\w.-]+)", _text_of(file))
            if found:
                return found.group(1)
    return "namespaces"


def _texts_of(manifest: pathlib.Path) -> list[pathlib.Path]:
    return sorted(manifest.iterdir()) if manifest.is_dir() else [manifest]


def _text_of(file: pathlib.Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _publish(cluster: Cluster, kubeconfig: pathlib.Path | None) -> pathlib.Path:
    """Write the kubeconfig where it is wanted, in whole or not at all: others may wait for it."""
    if kubeconfig is None:
        return cluster.kubeconfig
    draft = kubeconfig.with_name(kubeconfig.name + ".new")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    draft.write_text(cluster.kubeconfig.read_text(encoding="utf-8"), encoding="utf-8")
    os.replace(draft, kubeconfig)
    return kubeconfig


def _withdraw(path: pathlib.Path, kubeconfig: pathlib.Path | None) -> None:
    if path == kubeconfig:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _stopper() -> Iterator[threading.Event]:
    """An event that is set by Ctrl+C, by SIGTERM, and by the end of the terminal, for as long as the block
    lasts.
    """
    stop = threading.Event()

    def receive(signum: int, frame: types.FrameType | None) -> None:
        stop.set()

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous = {signum: signal.signal(signum, receive) for signum in signals}
    try:
        yield stop
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)


def _say_line(line: Line) -> None:
    # Beside the log, so that the order of both is kept where they go to the same place.
    coloured = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    click.echo(click.style(line.text, fg=line.colour) if coloured else line.text, err=True)


def _say(text: str) -> None:
    coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    click.echo(click.style(text, fg="cyan") if coloured else text)
