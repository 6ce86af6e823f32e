"""The lives of an operator: it dies at a chosen point, another one takes its place, and both are judged.
It owns the points, the deaths and the invariants; it must not know what the handlers of a scenario are.

For the cluster, whoever is cut off from it is dead: nothing of it arrives any more. What is left of the dead
in this process is a ghost, whose handlers do nothing; then it is ended, and all of its memory with it.
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
from definitions import ANYTHING, LAST, PREFIX, definition
from kopf.testing import Cluster, Operator, Request

GROUP = "crashes.example.com"
KIND = "crates"
DEFINITIONS = {status: definition(GROUP, "Crate", ANYTHING, status=status) for status in (False, True)}
GENEROUS = 60.0
"""Real seconds, for what takes milliseconds."""
BLINK = 0.06
"""Real seconds after which it is looked whether somebody has died who is still busy with knocking."""

Mode = Literal["killed before", "killed after", "never arrives", "answer lost", "killed at return"]
FAULTS: dict[Mode, tuple[Any, int]] = {
    "killed before": ("cut-off", 0),
    "killed after": ("cut-off", 1),
    "never arrives": ("reset", 0),
    "answer lost": ("lost", 0),
}


@dataclasses.dataclass(frozen=True)
class Point:
    """Where it happens: at the n-th request of this verb, or at the n-th return of this handler."""

    mode: Mode
    what: str
    number: int

    def __str__(self) -> str:
        return f"{self.mode} {self.what} {self.number}"


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a handler, as the handler can tell."""

    handler: str
    name: str
    reason: str | None
    old: Any
    new: Any
    retry: int


class Died(kopf.TemporaryError):
    """A handler is called in an operator that is dead.

    It is logged without its traceback, so that whoever keeps the logs keeps nothing else.
    """


@dataclasses.dataclass
class Scenario:
    """What happens to an operator's objects, one act after another, with time in between."""

    title: str
    declare: Callable[[Lives], None]
    acts: list[Callable[[Cluster], Any]]
    patience: float = 200.0
    """Virtual seconds after each act: enough for all that comes of it."""
    first: Callable[[Cluster], Any] | None = None
    """What is there before the operator."""
    counted: frozenset[str] = frozenset()
    """The handlers that must not be called again for what they have done."""
    inflight: int = 1
    """How many of them can be under way at once."""
    final: Callable[[Lives], list[str]] | None = None
    settings: Callable[[kopf.OperatorSettings], None] = lambda settings: None
    status: bool = False
    """Whether the kind has a status subresource."""


class Lives:
    """One run of a scenario: with a death in it, or without."""

    def __init__(self, scenario: Scenario, point: Point | None = None, *, absent: bool = False) -> None:
        super().__init__()
        self.scenario, self.point = scenario, point
        self.absent = absent
        """Whether the next act happens while nobody is there."""
        self.cluster = Cluster(tls=False)
        self.calls: list[Call] = []
        self.returns: collections.Counter[str] = collections.Counter()
        self.daemons: collections.Counter[str] = collections.Counter()
        self.memos: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self.index: Any = None
        self.life = 0
        self.deaths = 0
        self.requests: list[Request] = []
        self._operator: Operator | None = None
        self._lock = threading.Lock()

    # --- What handlers tell.

    @contextlib.contextmanager
    def call(self, handler: str, kwargs: dict[str, Any]) -> Iterator[None]:
        """A call, from its beginning to its return."""
        if self.cluster.is_disconnected:
            raise Died
        name = kwargs["name"]
        old, new = ((kwargs.get(it) or {}).get("spec") for it in ("old", "new"))
        reason = kwargs.get("reason")
        with self._lock:
            told = Call(handler, name, reason and str(reason), _text(old), _text(new), kwargs.get("retry", 0))
            self.calls.append(told)
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
        """A daemon, from its beginning to its end."""
        life = self.life
        self.daemons[f"{name} in life {life}"] += 1
        try:
            yield
        finally:
            self.daemons[f"{name} in life {life}"] -= 1

    def seen(self, handler: str, name: str) -> Any:
        """What the handler was called with last."""
        news = [it.new for it in self.calls if (it.handler, it.name) == (handler, name)]
        return json.loads(news[-1]) if news else None

    # --- The run.

    def run(self) -> list[str]:
        """What is wrong in the end."""
        with self.cluster as cluster:
            cluster.freeze()
            cluster.apply(DEFINITIONS[self.scenario.status])
            if self.scenario.first is not None:
                self.scenario.first(cluster)
            if self.point is not None and self.point.mode in FAULTS:
                fault, number = FAULTS[self.point.mode]
                verb, after = self.point.what, self.point.number
                cluster.inject(fault, number, verb=verb, resource=KIND, times=1, after=after)
            self._start()
            pending = list(self.scenario.acts)
            self._live(0)
            while pending:
                pending.pop(0)(cluster)
                self._live(self.scenario.patience, pending)
            wrong = self._judge()
            self.requests = [it for it in cluster.requests if f"/{KIND}" in it.path]
            self._stop()
            return wrong + self._remains()

    def _start(self) -> None:
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        settings.networking.error_backoffs = [1, 2, 3]
        self.scenario.settings(settings)
        self.life += 1
        self.daemons.clear()
        declare = lambda: self.scenario.declare(self)  # noqa: E731
        self._operator = Operator(self.cluster, declare, settings=settings, timeout=GENEROUS)
        self._operator.start()

    def _stop(self) -> None:
        operator, self._operator = self._operator, None
        if operator is not None:
            operator.stop()

    def _live(self, seconds: float, pending: list[Callable[[Cluster], Any]] | None = None) -> None:
        """Let time pass; whoever dies in it is replaced."""
        control = self.cluster.clock
        target = control.clock.now + round(seconds * 1_000_000)
        until = time.monotonic() + GENEROUS
        while True:
            if not self._calm(until):
                self._stop()
                self.deaths += 1
                self.cluster.clear_faults()
                if self.absent and pending:
                    pending.pop(0)(self.cluster)
                self._start()
                target = control.clock.now + round(seconds * 1_000_000)
            elif not control.clock.jump_to_next(target):
                if self._calm(until):
                    return

    def _calm(self, until: float) -> bool:
        """Wait until it is quiet; or until the operator is dead."""
        assert self._operator is not None
        while not self.cluster.is_disconnected:
            assert time.monotonic() < until, "it does not become quiet"
            with contextlib.suppress(TimeoutError):
                self._operator.wait_until_idle(timeout=BLINK)
                return not self.cluster.is_disconnected
        return False

    # --- The judgement.

    def _judge(self) -> list[str]:
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
        """The calls of those handlers that must not be called again, and how often each has come."""
        return collections.Counter(it for it in self.calls if it.handler in self.scenario.counted)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


# --- The exploration.


def points(scenario: Scenario, *, at_length: bool = False) -> tuple[list[Point], Lives]:
    """Where it can happen, as a run without any deaths shows; and that run."""
    lives = Lives(scenario)
    wrong = lives.run()
    assert wrong == [], f"without any deaths: {wrong}"
    verbs: collections.Counter[str] = collections.Counter()
    found = []
    for request in lives.requests:
        reading = (
            "watch" if "watch=true" in request.query else "list" if request.path.endswith(KIND) else "get"
        )
        verb = {"PATCH": "patch", "GET": reading}[request.method]
        modes: list[Mode] = ["killed before"]
        if verb == "patch":
            modes = ["killed before", "killed after", "never arrives", "answer lost"]
        elif at_length:
            modes = ["killed before", "killed after", "never arrives"]
        found += [Point(mode, verb, verbs[verb]) for mode in modes]
        verbs[verb] += 1
    for handler, count in lives.returns.items():
        found += [Point("killed at return", handler, number) for number in range(count)]
    return found, lives


def explore(scenario: Scenario, point: Point, calm: Lives, *, absent: bool = False) -> tuple[list[str], bool]:
    """What is wrong if it happens there; and whether it has happened: some requests come by chance only."""
    lives = Lives(scenario, point, absent=absent)
    wrong = lives.run()
    usual = calm.repeated()
    excess = {it: count - usual.get(it, 1) for it, count in lives.repeated().items()}
    excess = {it: count for it, count in excess.items() if count > 0}
    allowed = scenario.inflight if lives.deaths else 0
    if sum(excess.values()) > allowed:
        wrong.append(f"called again: {excess}")
    where = f"{scenario.title}, {point}{', absent' if absent else ''}"
    return [f"{where}: {it}" for it in wrong], "killed" not in point.mode or lives.deaths > 0
