"""Reports of the benchmark operators: JSON lines in the file `BENCH_OUT`. It uses only the public API of
Kopf, so it works with any contestant.

`ready`: the first call of a handler. `done`: all expected objects were seen in the expected revision.
`start`: a handler starts. `window_start`, `window_end`: all timers have fired once, or all daemons run; and
so many seconds have passed since.
"""

import functools
import inspect
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import kopf

GROUP = ("bench.example.com", "v1", "benches")
EXPECTED = int(os.environ.get("BENCH_EXPECT", "0"))
REVISION = int(os.environ.get("BENCH_REVISION", "0"))
WINDOW = float(os.environ.get("BENCH_WINDOW", "10"))
WORKERS = int(os.environ.get("BENCH_WORKERS", "0"))

_file = open(os.environ["BENCH_OUT"], "a", buffering=1)  # noqa: SIM115
_revisions: dict[str, int] = {}
_reported: set[str] = set()
_calls = 0


def report(what: str, **values: object) -> None:
    """Write a line."""
    _file.write(json.dumps({"what": what, "t": time.time(), **values}) + "\n")


def once(what: str, **values: object) -> None:
    """Write a line if it is the first one of its kind."""
    if what not in _reported:
        _reported.add(what)
        report(what, **values)


def traced(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the handler as tracing libraries do, if the environment asks for it.

    The decorator takes all keyword arguments, reads some of them, and passes them on.
    """
    if os.environ.get("BENCH_DECORATED") != "1":
        return fn

    @functools.wraps(fn)
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        _trace(kwargs)
        return await fn(*args, **kwargs)

    @functools.wraps(fn)
    def called(*args: Any, **kwargs: Any) -> Any:
        _trace(kwargs)
        return fn(*args, **kwargs)

    return awaited if inspect.iscoroutinefunction(fn) else called


def _trace(kwargs: dict[str, Any]) -> None:
    global _last_call
    _last_call = (kwargs["namespace"], kwargs["name"], kwargs.get("retry"))


_last_call: tuple[str | None, str, int | None] | None = None


def is_probe(name: str) -> bool:
    """Whether the object is only there for the operator to become ready by."""
    return name.startswith("probe")


def saw(name: str, revision: int) -> None:
    """Count an object in its revision."""
    global _calls, _complete
    _calls += 1
    once("ready")
    if is_probe(name):
        return
    before = _revisions.get(name)
    _revisions[name] = revision
    if revision == REVISION and before != revision:
        _complete += 1
        if _complete == EXPECTED:
            once("done", events=_calls)


_complete = 0


class Window:
    """The calls of one-second timers and how late they are, for some seconds after all have fired once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[str, float] = {}
        self._start: float | None = None
        self._late: list[float] = []

    def fire(self, name: str) -> None:
        """Count a call."""
        now = time.monotonic()
        with self._lock:
            last, self._last[name] = self._last.get(name), now
            if self._start is None and len(self._last) >= EXPECTED:
                self._start = now
                once("window_start")
            if self._start is None or last is None:
                return
            if now - self._start <= WINDOW:
                self._late.append(now - last - 1.0)
            elif "window_end" not in _reported:
                late = sorted(self._late)
                parts = {"late_p50": late[len(late) // 2], "late_p99": late[len(late) * 99 // 100]}
                once("window_end", invocations=len(late), **parts)


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: object) -> None:
    """The workload's options, from the environment."""
    if os.environ.get("BENCH_POSTING") == "1":
        settings.posting.loggers = True
    if WORKERS:
        settings.execution.max_workers = WORKERS
