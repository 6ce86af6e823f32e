"""Virtual time for tests: it can be stopped, and advanced with everything that happens meanwhile.

There is one virtual time per process, for the engine and for Python: the native clock wakes what waits in the
engine, and `VirtualClock` what waits in Python. Operators in production use real time.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from kopf._testing.bindings import VirtualTime

# Real seconds without any activity that count as idle where it is not known for certain.
QUIET_PERIOD = 0.05
# The same while data is in transit that its recipient may not read for a while, such as an unread watch.
QUIET_PERIOD_IN_TRANSIT = 1.0
# On a busy machine, quiet periods are longer: at least this multiple of the largest delay of a wake-up.
DELAYS_PER_QUIET_PERIOD = 20
# A quiet period is longer by this factor while other threads of the process run or wait for a processor.
SLOWDOWN_BY_THREADS = 20
# Real seconds without any activity that are enough, however busy the machine is.
LONGEST_QUIET_PERIOD = 10.0
# Real seconds between the checks: at first, and at most, as they use a processor themselves.
POLL_INTERVAL = 0.0001
LONGEST_POLL_INTERVAL = 0.002

SECOND = 1_000_000  # microseconds
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Tracker(Protocol):
    """The part of an idle tracker that the clock control needs."""

    @property
    def activity_count(self) -> object: ...
    @property
    def loop_turns(self) -> int: ...
    @property
    def is_observed(self) -> bool: ...
    @property
    def busy_reasons(self) -> list[str]: ...
    @property
    def running_daemons(self) -> list[str]: ...
    def flush_loop(self, timeout: float) -> None: ...


class VirtualClock:
    """Moves the clocks of the process; times are in microseconds since the epoch."""

    def __init__(self) -> None:
        super().__init__()
        self._native = VirtualTime()
        self._changed = threading.Condition()
        self._sleepers: dict[int, tuple[int, Callable[[], None], Callable[[], None]]] = {}
        self._numbers = itertools.count()
        self.frozen = False
        self.trackers: list[Tracker] = []  # of all running operators
        self.moved_by: set[ClockControl] = set()  # running clusters
        self.frozen_by: set[ClockControl] = set()  # some of these

    @property
    def now(self) -> int:
        """The current time."""
        return self._native.now

    def activity(self) -> object:
        """A value that changes with everything that engines and servers do, but not with their idle turns."""
        return self._native.activity()

    def turns(self) -> object:
        """A value that changes when the thread of the engines has executed anything, or a sleep has ended."""
        with self._changed:
            sleepers = tuple(self._sleepers)
        return self._native.turns(), sleepers

    def observe(self) -> tuple[list[str], list[str], list[str]]:
        """The work in progress, the data in transit, and the clients with an unknown state."""
        busy, in_transit, unknown = self._native.observe()
        with self._changed:
            next_in_python = min((due for due, _, _ in self._sleepers.values()), default=None)
        if next_in_python is not None and next_in_python <= self.now:
            busy.append("a sleep whose time has come")
        return busy, in_transit, unknown

    def runnable_threads(self) -> int:
        """The number of other threads of the process that run or wait for a processor, if it is known."""
        return self._native.runnable_threads()

    def freeze(self) -> None:
        """Stop time where it is."""
        self._native.freeze()
        self.frozen = True
        self._wake(None)

    def thaw(self) -> None:
        """Let time continue from where it is."""
        self._native.thaw()
        self.frozen = False
        self.frozen_by.clear()
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
        self._is_in_use = False  # the clock is

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
        self._is_in_use = True
        self._trackers.append(tracker)
        self.clock.trackers.append(tracker)
        try:
            yield
        finally:
            self._trackers.remove(tracker)
            self.clock.trackers.remove(tracker)

    def freeze(self) -> None:
        """Stop time where it is."""
        self._is_in_use = True
        self.clock.moved_by.add(self)
        self.clock.frozen_by.add(self)
        self.clock.freeze()

    def thaw(self) -> None:
        """Let time continue from where it is."""
        self.clock.thaw()

    def reset(self) -> None:
        """Return to real time; it does not go back for other clusters that have operators or have moved it.

        For these, it continues from where it is, unless one of them has frozen it.
        """
        if not self._is_in_use:
            return
        self._is_in_use = False
        clock = self.clock
        was_frozen_here = self in clock.frozen_by
        clock.moved_by.discard(self)
        clock.frozen_by.discard(self)
        has_other_operators = any(tracker not in self._trackers for tracker in clock.trackers)
        if not has_other_operators and not clock.moved_by:
            clock.reset()
        elif was_frozen_here and not clock.frozen_by:
            clock.thaw()

    def advance(self, seconds: float, timeout: float) -> None:
        """Advance time by these seconds; `timeout` is in real seconds."""
        deadline = time.monotonic() + timeout
        was_running = not self.clock.frozen
        self.freeze()
        target = self.clock.now + round(seconds * SECOND)
        try:
            observation = self._wait(deadline)
            while observation.is_over and self.clock.jump_to_next(target):
                observation = self._wait(deadline)
            if observation.is_over:
                observation = self._wait(deadline)
            if not observation.is_over:
                remaining = (target - self.clock.now) / SECOND
                raise TimeoutError(
                    f"advance({seconds:g}) did not finish within {timeout} seconds of real time: "
                    f"{remaining:g} seconds of virtual time remain. A handler has not returned, or there are "
                    f"too many calls for this timeout. Busy: {observation.reasons}."
                )
        finally:
            if was_running:
                self.thaw()

    def advance_until(self, done: Callable[[], bool], timeout: float) -> None:
        """If time is frozen, advance it until the function returns true: the caller waits in real time."""
        deadline = time.monotonic() + timeout
        while self.clock.frozen and not done() and time.monotonic() < deadline:
            observation = self._wait(deadline, done)
            if observation.is_over and not done() and not self.clock.jump_to_next():
                time.sleep(LONGEST_POLL_INTERVAL)  # a thread executes code that is not known

    def wait_until_idle(self, timeout: float, *, started: float | None = None) -> None:
        """Wait until the operators, the server, and the connections between them are idle.

        Everything that one of them has handed over to another one counts as activity until it is taken.
        Waiting for a deadline is idle, but not a deadline that has come. The state of daemons that execute
        their own code, and of other clients that watch, is not known: then there must be no activity for
        the quiet period, which is longer on a busy machine.

        The timeout is in seconds since `started` (monotonic); None: since now.
        """
        observation = self._wait((started if started is not None else time.monotonic()) + timeout)
        if not observation.is_over:
            raise TimeoutError(
                f"The operator was not idle within {timeout:g} seconds. Busy: {observation.reasons}."
            )

    def _wait(self, deadline: float, done: Callable[[], bool] = lambda: False) -> _Observation:
        """Wait until everything is idle, or done, or until the deadline; get the last observation."""
        quiet, pause, idle_rounds = _QuietTime(), POLL_INTERVAL, 0
        while True:
            trackers = list(self.clock.trackers)  # of the operators of all clusters: they share the time
            for tracker in trackers:
                tracker.flush_loop(max(0.0, deadline - time.monotonic()))
            observation = self._observe()
            idle_rounds = idle_rounds + 1 if observation.is_idle else 0
            # Event loops that cannot be observed may execute something between the flush and the observation.
            if idle_rounds >= (1 if all(tracker.is_observed for tracker in trackers) else 2):
                observation.is_over = True
            elif not observation.is_idle:
                observation.is_over = quiet.is_over(observation)
            if observation.is_over or done() or time.monotonic() > deadline:
                return observation
            if not observation.is_idle:
                threads = self.clock.runnable_threads() if observation.is_uncertain else 0
                quiet.sleep(pause, observation, threads)
                pause = min(pause * 2, LONGEST_POLL_INTERVAL)

    def _observe(self) -> _Observation:
        activity = self._activity()
        before = self._turns()
        busy, in_transit, unknown = self.clock.observe()
        for tracker in self.clock.trackers:
            busy += tracker.busy_reasons
            unknown += tracker.running_daemons
        is_consistent = before == self._turns() and activity == self._activity()
        return _Observation(busy, in_transit, unknown, activity, is_consistent)

    def _activity(self) -> object:
        """A value that changes with everything that an operator or the server does for objects."""
        counts = [tracker.activity_count for tracker in self.clock.trackers]
        return self._activity_marker(), self.clock.activity(), counts

    def _turns(self) -> object:
        """A value that changes when a thread of the engine or an event loop has executed anything."""
        return self.clock.turns(), [tracker.loop_turns for tracker in self.clock.trackers]


@dataclasses.dataclass
class _Observation:
    """The work of the operators, of the server and of their connections at one moment."""

    busy: list[str]
    """Work that ends by itself."""
    in_transit: list[str]
    """Data that is handed over, and not taken yet."""
    unknown: list[str]
    """Daemons and clients that may do something or not."""
    activity: object
    """The activity so far."""
    is_consistent: bool
    """Whether nothing has changed from the begin of the observation to its end: all is from one moment."""
    is_over: bool = False
    """Whether the wait is over: everything is idle for certain, or has been idle for the quiet period."""

    @property
    def is_idle(self) -> bool:
        """Whether it is certain that everything is idle."""
        return self.is_consistent and not (self.busy or self.in_transit or self.unknown)

    @property
    def is_uncertain(self) -> bool:
        """Whether only the passing of time shows that everything is idle."""
        return not self.busy and bool(self.in_transit or self.unknown)

    @property
    def reasons(self) -> str:
        """Who is busy."""
        reasons = dict.fromkeys([*self.busy, *self.in_transit, *self.unknown])
        return ", ".join(reasons) or "activity between two checks"


class _QuietTime:
    """The time without any activity. On a busy machine, more of it is needed."""

    def __init__(self) -> None:
        self._activity: object = None
        self._quiet = 0.0
        self._slept = 0.0
        self._largest_delay = 0.0

    def is_over(self, observation: _Observation) -> bool:
        """Whether the quiet period is over. It begins again with each activity."""
        if observation.activity != self._activity:
            self._activity, self._quiet, self._slept = observation.activity, 0.0, 0.0
        period = QUIET_PERIOD_IN_TRANSIT if observation.in_transit else QUIET_PERIOD
        period = max(period, DELAYS_PER_QUIET_PERIOD * self._largest_delay)
        is_quiet = self._quiet >= period or self._slept >= LONGEST_QUIET_PERIOD
        return observation.is_uncertain and is_quiet

    def sleep(self, seconds: float, observation: _Observation, runnable_threads: int) -> None:
        """Wait for the next check, while so many other threads run or wait for a processor."""
        before = time.monotonic()
        time.sleep(seconds)
        slept = time.monotonic() - before
        self._largest_delay = max(self._largest_delay, slept - seconds)
        if observation.is_uncertain:
            self._slept += slept
            self._quiet += slept / (SLOWDOWN_BY_THREADS if runnable_threads else 1)
