"""Simulated crashes of an operator: it crashes at a chosen point, a new one starts, and the objects are
checked. The checks are independent of the handlers of a scenario.

A crash is a disconnection from the cluster: no further request arrives. The disconnected operator still runs
in this process, but its handlers do nothing; then it is stopped and its memory is released.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import gc
import json
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Literal

import kopf
from kopf.testing import Cluster, Operator, Request

from tests.faults.crds import ANYTHING, LAST, PREFIX, make_crd

GROUP = "crashes.example.com"
KIND = "crates"
CRDS = {status: make_crd(GROUP, "Crate", ANYTHING, status=status) for status in (False, True)}
GENEROUS = 60.0
"""The timeout of steps that take milliseconds, in real seconds."""
BLINK = 0.06
"""The interval of checks for a crash while an operator retries its requests, in real seconds."""

Mode = Literal["killed before", "killed after", "never arrives", "answer lost", "killed at return"]
FAULTS: dict[Mode, tuple[Any, int]] = {
    "killed before": ("cut-off", 0),
    "killed after": ("cut-off", 1),
    "never arrives": ("reset", 0),
    "answer lost": ("lost", 0),
}


@dataclasses.dataclass(frozen=True)
class Point:
    """The point of the crash: the n-th request with this verb, or the n-th return of this handler.

    The verb is followed by the plural name of the resource, if the request is for another one.
    """

    mode: Mode
    what: str
    number: int

    def __str__(self) -> str:
        return f"{self.mode} {self.what} {self.number}"


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a handler, with its arguments."""

    handler: str
    name: str
    reason: str | None
    old: Any
    new: Any
    retry: int


class OperatorCrashed(kopf.TemporaryError):
    """A handler was called in a crashed operator.

    It is logged without a traceback, so that captured log records hold no references to frames.
    """


@dataclasses.dataclass
class Scenario:
    """A sequence of changes of objects, with a pause after each."""

    title: str
    declare: Callable[[CrashRun], None]
    acts: list[Callable[[Cluster], Any]]
    pause: float = 200.0
    """Virtual seconds after each act, enough for its handling to finish."""
    first: Callable[[Cluster], Any] | None = None
    """Creates the objects that exist before the operator starts."""
    counted: frozenset[str] = frozenset()
    """The handlers that must not be called again after they have succeeded."""
    inflight: int = 1
    """The largest number of them that can run at once."""
    final: Callable[[CrashRun], list[str]] | None = None
    settings: Callable[[kopf.OperatorSettings], None] = lambda settings: None
    status: bool = False
    """Whether the kind has a status subresource."""
    children: tuple[str, ...] = ()
    """The plural names of other kinds whose requests count."""


class CrashRun:
    """One run of a scenario, with a crash or without."""

    def __init__(self, scenario: Scenario, point: Point | None = None, *, absent: bool = False) -> None:
        super().__init__()
        self.scenario, self.point = scenario, point
        self.absent = absent
        """Whether the next act happens while no operator runs."""
        self.cluster = Cluster(tls=False)
        self.calls: list[Call] = []
        self.returns: collections.Counter[str] = collections.Counter()
        self.daemons: collections.Counter[str] = collections.Counter()
        self.memos: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self.index: Any = None
        self.operator_number = 0
        self.crashes = 0
        self.requests: list[Request] = []
        self._operator: Operator | None = None
        self._lock = threading.Lock()

    # --- Called by handlers.

    @contextlib.contextmanager
    def call(self, handler: str, kwargs: dict[str, Any]) -> Iterator[None]:
        """Record a call, and crash at its return if that is the point."""
        if self.cluster.is_disconnected:
            raise OperatorCrashed
        name = kwargs["name"]
        old, new = ((kwargs.get(it) or {}).get("spec") for it in ("old", "new"))
        reason = kwargs.get("reason")
        with self._lock:
            call = Call(handler, name, reason and str(reason), _text(old), _text(new), kwargs.get("retry", 0))
            self.calls.append(call)
            self.memos[name] = kwargs["memo"]
        try:
            yield
        finally:
            with self._lock:
                number = self.returns[handler]
                self.returns[handler] += 1
            if self.point == Point("killed at return", handler, number):
                self.cluster.disconnect_clients()

    @contextlib.contextmanager
    def daemon(self, name: str) -> Iterator[None]:
        """Count a daemon as running in this context."""
        number = self.operator_number
        self.daemons[f"{name} in operator {number}"] += 1
        try:
            yield
        finally:
            self.daemons[f"{name} in operator {number}"] -= 1

    def seen(self, handler: str, name: str) -> Any:
        """The spec that the handler was last called with."""
        news = [it.new for it in self.calls if (it.handler, it.name) == (handler, name)]
        return json.loads(news[-1]) if news else None

    # --- The run.

    def run(self) -> list[str]:
        """Run the scenario, and return the violations found at its end."""
        with self.cluster as cluster:
            cluster.freeze()
            cluster.apply(CRDS[self.scenario.status])
            if self.scenario.first is not None:
                self.scenario.first(cluster)
            if self.point is not None and self.point.mode in FAULTS:
                fault, number = FAULTS[self.point.mode]
                verb, _, plural = self.point.what.partition(" ")
                after = self.point.number
                cluster.inject(fault, number, verb=verb, resource=plural or KIND, times=1, after=after)
            self._start()
            pending = list(self.scenario.acts)
            self._advance(0)
            while pending:
                pending.pop(0)(cluster)
                self._advance(self.scenario.pause, pending)
            wrong = self._check()
            paths = [f"/{plural}" for plural in (KIND, *self.scenario.children)]
            self.requests = [it for it in cluster.requests if any(path in it.path for path in paths)]
            self._stop()
            return wrong + self._remains()

    def _start(self) -> None:
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        settings.networking.error_backoffs = [1, 2, 3]
        self.scenario.settings(settings)
        self.operator_number += 1
        self.daemons.clear()
        declare = lambda: self.scenario.declare(self)  # noqa: E731
        self._operator = Operator(self.cluster, declare, settings=settings, timeout=GENEROUS)
        self._operator.start()

    def _stop(self) -> None:
        operator, self._operator = self._operator, None
        if operator is not None:
            operator.stop()

    def _advance(self, seconds: float, pending: list[Callable[[Cluster], Any]] | None = None) -> None:
        """Advance the clock, and replace the operator if it crashes meanwhile."""
        control = self.cluster.clock
        target = control.clock.now + round(seconds * 1_000_000)
        until = time.monotonic() + GENEROUS
        while True:
            if not self._wait_until_idle(until):
                self._stop()
                self.crashes += 1
                self.cluster.clear_faults()
                if self.absent and pending:
                    pending.pop(0)(self.cluster)
                self._start()
                target = control.clock.now + round(seconds * 1_000_000)
            elif not control.clock.jump_to_next(target):
                if self._wait_until_idle(until):
                    return

    def _wait_until_idle(self, until: float) -> bool:
        """Wait until the operator is idle, and return True; return False if it has crashed."""
        assert self._operator is not None
        while not self.cluster.is_disconnected:
            assert time.monotonic() < until, "the operator does not become idle"
            with contextlib.suppress(TimeoutError):
                self._operator.wait_until_idle(timeout=BLINK)
                return not self.cluster.is_disconnected
        return False

    # --- The checks.

    def _check(self) -> list[str]:
        wrong = []
        for body in self.cluster.list(KIND):
            name, meta = body["metadata"]["name"], body["metadata"]
            if "deletionTimestamp" in meta:
                wrong.append(f"{name} is stuck: {meta.get('finalizers')}")
            ours = [key for key in meta.get("annotations") or {} if key.startswith(PREFIX)]
            if self.scenario.counted and not meta.get("labels", {}).get("ignored"):
                if ours != [LAST]:
                    wrong.append(f"{name} has {ours}")
                elif progress := (body.get("status") or {}).get("progress"):
                    wrong.append(f"{name} has {progress} in its status")
                elif json.loads(meta["annotations"][LAST]).get("spec") != body.get("spec"):
                    wrong.append(f"{name} was handled last at {meta['annotations'][LAST]}")
        if self.scenario.final is not None:
            wrong += self.scenario.final(self)
        names = {body["metadata"]["name"] for body in self.cluster.list(KIND)}
        if len(running := [key for key, count in self.daemons.items() if count]) != sum(
            self.daemons.values()
        ):
            wrong.append(f"daemons: {running}")
        gc.collect()
        wrong += [f"memo of {name}" for name in set(self.memos) - names]
        return wrong

    def _remains(self) -> list[str]:
        return [f"a daemon of {name} is left" for name, count in self.daemons.items() if count]

    def repeated(self) -> dict[Call, int]:
        """The calls of the counted handlers, with the number of times of each."""
        return collections.Counter(it for it in self.calls if it.handler in self.scenario.counted)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


# --- The exploration.


def points(scenario: Scenario, *, at_length: bool = False) -> tuple[list[Point], CrashRun]:
    """The possible points of a crash, from a run without a crash; and that run."""
    crash_run = CrashRun(scenario)
    wrong = crash_run.run()
    assert wrong == [], f"without a crash: {wrong}"
    verbs: collections.Counter[str] = collections.Counter()
    found = []
    for request in crash_run.requests:
        plural = next((it for it in scenario.children if f"/{it}" in request.path), KIND)
        is_list = request.path.endswith(plural)
        reading = "watch" if "watch=true" in request.query else "list" if is_list else "get"
        verb = {"PATCH": "patch", "DELETE": "delete", "GET": reading}[request.method]
        modes: list[Mode] = ["killed before"]
        if verb in ("patch", "delete"):
            modes = ["killed before", "killed after", "never arrives", "answer lost"]
        elif at_length:
            modes = ["killed before", "killed after", "never arrives"]
        what = verb if plural == KIND else f"{verb} {plural}"
        found += [Point(mode, what, verbs[what]) for mode in modes]
        verbs[what] += 1
    for handler, count in crash_run.returns.items():
        found += [Point("killed at return", handler, number) for number in range(count)]
    return found, crash_run


def explore(
    scenario: Scenario, point: Point, baseline: CrashRun, *, absent: bool = False
) -> tuple[list[str], bool]:
    """Run the scenario with a crash at the point. Return the violations, and whether the point was reached:
    not all requests occur in every run."""
    crash_run = CrashRun(scenario, point, absent=absent)
    wrong = crash_run.run()
    usual = baseline.repeated()
    excess = {it: count - usual.get(it, 1) for it, count in crash_run.repeated().items()}
    excess = {it: count for it, count in excess.items() if count > 0}
    allowed = scenario.inflight if crash_run.crashes else 0
    if sum(excess.values()) > allowed:
        wrong.append(f"called again: {excess}")
    where = f"{scenario.title}, {point}{', absent' if absent else ''}"
    return [f"{where}: {it}" for it in wrong], "killed" not in point.mode or crash_run.crashes > 0
