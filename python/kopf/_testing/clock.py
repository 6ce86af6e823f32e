"""Virtual time for tests: it can be stopped, and advanced with everything that happens meanwhile.

There is one virtual time per process, for the engine and for Python: the native clock wakes what waits in the
engine, and `VirtualClock` what waits in Python. Operators in production use real time.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from kopf._runtime import bridge

# Real seconds without any activity that count as idle where it is not known for certain.
QUIET_PERIOD = 0.05
# The same where the engine is not idle: on a busy machine, it may be waiting for a processor.
QUIET_PERIOD_OF_BUSY_ENGINES = 1.0
# Real seconds between the checks while there is activity.
POLL_INTERVAL = 0.0005

SECOND = 1_000_000  # microseconds
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Tracker(Protocol):
    """The part of an idle tracker that the clock control needs."""

    @property
    def activity_count(self) -> int: ...
    @property
    def is_busy(self) -> bool: ...
    @property
    def has_running_daemons(self) -> bool: ...
    def flush_loop(self, timeout: float) -> None: ...
    def wait_for_activity(self, timeout: float) -> None: ...


class VirtualClock:
    """Moves the clocks of the process; times are in microseconds since the epoch."""

    def __init__(self) -> None:
        super().__init__()
        self._native = bridge.VirtualTime()
        self._changed = threading.Condition()
        self._sleepers: dict[int, tuple[int, Callable[[], None], Callable[[], None]]] = {}
        self._numbers = itertools.count()
        self.frozen = False

    @property
    def now(self) -> int:
        """The current time."""
        return self._native.now

    @property
    def is_idle(self) -> bool:
        """Whether the engines and servers are idle, and nothing is in transit between them."""
        return self._native.is_idle()

    @property
    def is_busy(self) -> bool:
        """Whether the engines do something that takes real time, such as requests."""
        return self._native.is_busy

    def freeze(self) -> None:
        """Stop time where it is."""
        self._native.freeze()
        self.frozen = True
        self._wake(None)

    def thaw(self) -> None:
        """Let time continue from where it is."""
        self._native.thaw()
        self.frozen = False
        self._wake(None)

    def reset(self) -> None:
        """Return to real time."""
        self._native.reset()
        self.frozen = False
        self._wake(None)

    def jump_to_next(self, limit: int | None = None) -> bool:
        """Move frozen time to the next deadline, but not beyond the limit; false if there is none until then.

        Without a limit, time is not moved if there are no deadlines.

        """
        with self._changed:
            next_in_python = min((due for due, _, _ in self._sleepers.values()), default=None)
        if limit is None:
            next_in_engine = self._native.next
            dues = [due for due in (next_in_python, next_in_engine) if due is not None]
            return bool(dues) and self.jump_to_next(min(dues))
        target = limit if next_in_python is None else min(limit, next_in_python)
        waits = self._native.advance_to(target)
        self._wake(self.now)
        return waits or (next_in_python is not None and next_in_python <= limit)

    def _wake(self, moment: int | None) -> None:
        with self._changed:
            if moment is None:  # their deadlines are not reached, but must be checked again
                calls = [wake for _, wake, _ in self._sleepers.values()]
            else:
                due = [number for number, (deadline, _, _) in self._sleepers.items() if deadline <= moment]
                due.sort(key=lambda number: self._sleepers[number][0])
                woken_sleepers = [self._sleepers.pop(number) for number in due]
                calls = [call for _, wake, on_wake in woken_sleepers for call in (on_wake, wake)]
        for call in calls:
            call()
        self.notify()

    def notify(self) -> None:
        """Let the threads that wait check their predicates."""
        with self._changed:
            self._changed.notify_all()

    @contextlib.contextmanager
    def _register_sleeper(
        self, due: int | None, wake: Callable[[], None], on_wake: Callable[[], None]
    ) -> Iterator[None]:
        number = next(self._numbers)
        if due is not None:
            with self._changed:
                self._sleepers[number] = (due, wake, on_wake)
        try:
            yield
        finally:
            with self._changed:
                self._sleepers.pop(number, None)

    def _remaining(self, due: int | None) -> float | None:
        """Real seconds until the deadline; None if time is frozen, or if there is no deadline."""
        return None if due is None or self.frozen else max(0.0, (due - self.now) / SECOND)

    def wait_in_thread(
        self, predicate: Callable[[], bool], timeout: float | None, on_wake: Callable[[], None]
    ) -> None:
        """Block the thread until the predicate is true, at most `timeout` seconds."""
        due = None if timeout is None else self.now + int(timeout * SECOND)
        while not predicate() and (due is None or self.now < due):
            with self._register_sleeper(due, self.notify, on_wake), self._changed:
                if not predicate() and (due is None or self.now < due):
                    self._changed.wait(self._remaining(due))

    async def wait_in_loop(
        self, future: asyncio.Future[Any], timeout: float | None, on_wake: Callable[[], None]
    ) -> None:
        """Wait in the current event loop until the future is done, at most `timeout` seconds."""
        due = None if timeout is None else self.now + int(timeout * SECOND)
        loop = asyncio.get_running_loop()
        while not future.done() and (due is None or self.now < due):
            wakeup: asyncio.Future[None] = loop.create_future()
            with self._register_sleeper(due, functools.partial(_wake_loop, loop, wakeup), on_wake):
                if due is None or self.now < due:
                    await asyncio.wait(
                        [future, wakeup], timeout=self._remaining(due), return_when=asyncio.FIRST_COMPLETED
                    )

    async def sleep(self, seconds: float) -> None:
        """Wait in the current event loop."""
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await self.wait_in_loop(never, seconds, lambda: None)


def _wake_loop(loop: asyncio.AbstractEventLoop, wakeup: asyncio.Future[None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed, and nothing waits
        loop.call_soon_threadsafe(lambda: None if wakeup.done() else wakeup.set_result(None))


@functools.cache
def virtual_clock() -> VirtualClock:
    """The clock of the process."""
    return VirtualClock()


class ClockControl:
    """Controls the virtual time of the process for one cluster, and waits until its operators are idle."""

    def __init__(self, activity_marker: Callable[[], object]) -> None:
        super().__init__()
        self._activity_marker = activity_marker
        self._trackers: list[Tracker] = []
        self._frozen_here = False

    @functools.cached_property
    def clock(self) -> VirtualClock:
        """The clock of the operators."""
        return virtual_clock()

    @property
    def now(self) -> datetime.datetime:
        """The current time."""
        return EPOCH + datetime.timedelta(microseconds=self.clock.now)

    @contextlib.contextmanager
    def track(self, tracker: Tracker) -> Iterator[None]:
        """Include the operator in the waiting during the `with` block."""
        self._trackers.append(tracker)
        try:
            yield
        finally:
            self._trackers.remove(tracker)

    def freeze(self) -> None:
        """Stop time where it is."""
        self._frozen_here = True
        self.clock.freeze()

    def thaw(self) -> None:
        """Let time continue from where it is."""
        self.clock.thaw()

    def reset(self) -> None:
        """Return to real time, if time was frozen here."""
        if self._frozen_here:
            self._frozen_here = False
            self.clock.reset()

    def advance(self, seconds: float, timeout: float) -> None:
        """Advance time by these seconds; `timeout` is in real seconds."""
        deadline = time.monotonic() + timeout
        was_running = not self.clock.frozen
        self.freeze()
        target = self.clock.now + round(seconds * SECOND)
        try:
            self.wait_until_idle(timeout)
            while self.clock.jump_to_next(target):
                self.wait_until_idle(deadline - time.monotonic())
            self.wait_until_idle(deadline - time.monotonic())
        except TimeoutError:
            remaining = (target - self.clock.now) / SECOND
            raise TimeoutError(
                f"advance({seconds:g}) did not finish within {timeout} seconds of real time: "
                f"{remaining:g} seconds of virtual time remain. A handler has not returned, or there are "
                "too many calls for this timeout."
            ) from None
        finally:
            if was_running:
                self.thaw()

    def advance_until(self, done: Callable[[], bool], timeout: float) -> None:
        """If time is frozen, advance it until the function returns true: the caller waits in real time."""
        deadline = time.monotonic() + timeout
        while self.clock.frozen and not done() and time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                self.wait_until_idle(min(1.0, deadline - time.monotonic()))
                if not done():
                    self.clock.jump_to_next()

    def wait_until_idle(self, timeout: float) -> None:
        """Wait until the operators, the server, and the connections between them are idle.

        Waiting for a deadline is idle. The state of daemons that execute their own code is not known: then
        there must be no activity for the quiet period. If other clients keep the engines busy, it is longer.
        """
        deadline = time.monotonic() + timeout
        since, before, idle_rounds = time.monotonic(), self._state(), 0
        while idle_rounds < 2:
            now = time.monotonic()
            if now > deadline:
                raise TimeoutError(f"The operator was not idle within {timeout} seconds.")
            idle = self.clock.is_idle
            for tracker in self._trackers:
                tracker.flush_loop(deadline - now)
            state = self._state()
            busy = [tracker for tracker in self._trackers if tracker.is_busy]
            if state != before or busy or self.clock.is_busy:
                since, before, idle_rounds = time.monotonic(), state, 0
                if busy:
                    busy[0].wait_for_activity(POLL_INTERVAL * 4)
                elif not idle:
                    time.sleep(POLL_INTERVAL)
                continue
            quiet_period = QUIET_PERIOD if idle else QUIET_PERIOD_OF_BUSY_ENGINES
            if time.monotonic() - since >= quiet_period:
                return
            certain = idle and not any(tracker.has_running_daemons for tracker in self._trackers)
            idle_rounds = idle_rounds + 1 if certain else 0
            if not certain:
                time.sleep(POLL_INTERVAL)

    def _state(self) -> object:
        return self._activity_marker(), [tracker.activity_count for tracker in self._trackers]
