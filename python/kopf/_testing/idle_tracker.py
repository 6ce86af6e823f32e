"""Tracker of the work of one operator: whether it is idle, for tests that wait for that."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from kopf._testing.clock import DELAYS_PER_QUIET_PERIOD, LONGEST_QUIET_PERIOD, VirtualClock
from kopf._testing.observed_selector import ObservedSelector

# In event loops that cannot be observed, a callback can schedule another one: so many are awaited.
LOOP_PASSES = 4
# Seconds between two checks whether an operator of a cluster that is not embedded is idle.
POLL_INTERVAL = 0.01


class IdleTracker:
    """Knows the handlings and calls that are in progress in one operator; can be used in any thread."""

    def __init__(self, clock: VirtualClock | None = None) -> None:
        super().__init__()
        self.clock: VirtualClock | None = clock
        """The clock of the operator; None for real time."""
        self._changed = threading.Condition()
        # The descriptions of the work, by its ids.
        self._open_work: dict[int, str] = {}
        self._awaiting_reply: dict[int, str] = {}
        self._running_daemons: dict[int, str] = {}
        self._activity_count = 0
        self._connected = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._selector: ObservedSelector | None = None
        self._transition: str | None = None
        self._pending: Callable[[], int] = lambda: 0
        self._awaited_streams: Callable[[], list[str]] = list
        self._has_engine = False

    def thread_starts(self) -> None:
        """The thread of the operator is to be started; it is busy until it has an event loop."""
        with self._changed:
            self._transition = "the start of the operator's thread"
            self._connected.clear()
            self._has_engine = False
            self._pending, self._awaited_streams = lambda: 0, list
            self._activity_count += 1

    def thread_ends(self) -> None:
        """The thread of the operator ends, and does nothing more."""
        with self._changed:
            self._transition = self._loop = self._selector = None
            self._has_engine = False
            self._connected.set()  # nothing can be awaited any more
            self._pending, self._awaited_streams = lambda: 0, list
            for work in (self._open_work, self._awaiting_reply, self._running_daemons):
                work.clear()
            self._activity_count += 1
            self._changed.notify_all()

    def set_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the event loop of the handlers."""
        self._loop = loop

    def observe(self, selector: ObservedSelector | None) -> None:
        """Set the selector of the event loop; None if the event loop cannot be observed."""
        with self._changed:
            self._selector = selector
            self._transition = None
            self._activity_count += 1

    def set_engine(self, pending: Callable[[], int], awaited_streams: Callable[[], list[str]]) -> None:
        """Set the functions that count the items that the engine has ready for Python, and that name the
        watch streams whose first listing is awaited."""
        self._pending, self._awaited_streams = pending, awaited_streams
        self._has_engine = True

    def engine_connected(self) -> None:
        """The engine has sent its first request."""
        self._connected.set()

    def wait_until_connected(self, timeout: float) -> bool:
        """Wait until the engine has sent its first request, or has ended; false on timeout (seconds)."""
        return self._connected.wait(timeout)

    def work_started(self, work_id: int, description: str = "") -> None:
        """The engine waits for Python."""
        with self._changed:
            self._open_work[work_id] = self._awaiting_reply[work_id] = description
            self._running_daemons.pop(work_id, None)
            self._activity_count += 1
            self._changed.notify_all()

    def work_finished(self, work_id: int) -> None:
        """The outcome is written to the object."""
        with self._changed:
            self._open_work.pop(work_id, None)
            self._awaiting_reply.pop(work_id, None)
            self._activity_count += 1
            self._changed.notify_all()

    def reply_sent(self, work_id: int) -> None:
        """Python has replied; the outcome is not written to the object yet."""
        with self._changed:
            self._awaiting_reply.pop(work_id, None)
            self._activity_count += 1
            self._changed.notify_all()

    def daemon_running(self, daemon_id: int, description: str = "") -> None:
        """A daemon executes its own code."""
        with self._changed:
            self._running_daemons[daemon_id] = description
            self._activity_count += 1
            self._changed.notify_all()

    def daemon_waiting(self, daemon_id: int) -> None:
        """A daemon waits for its flag, or has ended."""
        with self._changed:
            self._running_daemons.pop(daemon_id, None)
            # A timer may wait for its end, too.
            self._open_work.pop(daemon_id, None)
            self._awaiting_reply.pop(daemon_id, None)
            self._activity_count += 1
            self._changed.notify_all()

    @property
    def activity_count(self) -> int:
        """The number of starts and ends so far."""
        return self._activity_count

    @property
    def loop_turns(self) -> int:
        """The number of turns of the event loop, if it is observed."""
        selector = self._selector
        return selector.turns if selector is not None else 0

    @property
    def is_observed(self) -> bool:
        """Whether it is known what the event loop executes."""
        return self._selector is not None or self._loop is None

    @property
    def busy_reasons(self) -> list[str]:
        """The work in progress that ends by itself, in frozen time too if time is frozen."""
        frozen = self.clock is not None and self.clock.frozen
        with self._changed:
            work = self._awaiting_reply if frozen else self._open_work
            reasons = [text or "a handler" for text in work.values()]
            transition, selector = self._transition, self._selector
        if transition is not None:
            reasons.append(transition)
        if self._has_engine and not self._connected.is_set():
            reasons.append("the login of an operator")
        if self._pending() > 0:
            reasons.append("messages of the engine to an event loop")
        if selector is not None and not selector.is_idle:
            reasons.append("the event loop of an operator")
        return reasons

    @property
    def running_daemons(self) -> list[str]:
        """The daemons that execute their own code."""
        with self._changed:
            return [text or "a daemon" for text in self._running_daemons.values()]

    def wait_until_idle(self, quiet_period: float, timeout: float) -> list[str]:
        """Wait until no work is in progress or starts for the quiet period (seconds).

        It begins after the first listings, which can take long. It grows with the delays of this thread: on a
        busy machine, other threads and the server are late, too.

        Returns:
            The work in progress at the timeout (seconds); empty if the operator is idle.
        """
        deadline = time.monotonic() + timeout
        quiet, largest_delay, activity_count = 0.0, 0.0, -1
        while True:
            reasons = self._awaited_streams()
            with self._changed:
                if self._transition is not None:
                    reasons.append(self._transition)
                elif self._has_engine and not self._connected.is_set():
                    reasons.append("the login of the operator")
                reasons += [text or "a handler" for text in self._open_work.values()]
                if reasons or self._pending() > 0 or activity_count != self._activity_count:
                    quiet, largest_delay, activity_count = 0.0, 0.0, self._activity_count
            longer = min(DELAYS_PER_QUIET_PERIOD * largest_delay, LONGEST_QUIET_PERIOD)
            if not reasons and quiet >= max(quiet_period, longer):
                return []
            if (before := time.monotonic()) >= deadline:
                return reasons or ["activity between two checks"]
            time.sleep(POLL_INTERVAL)
            slept = time.monotonic() - before
            quiet += slept
            largest_delay = max(largest_delay, slept - POLL_INTERVAL)

    def flush_loop(self, timeout: float) -> None:
        """Let the operator's event loop execute all callbacks that are ready, if it cannot be observed."""
        loop = self._loop
        if loop is None or self._selector is not None:
            return
        done = threading.Event()

        def run_pass(passes: int) -> None:
            if passes and not loop.is_closed():
                loop.call_soon(run_pass, passes - 1)
            else:
                done.set()

        try:
            loop.call_soon_threadsafe(run_pass, LOOP_PASSES)
        except RuntimeError:  # it is closed: there is nothing ready any more
            return
        deadline = time.monotonic() + timeout
        # A callback that is scheduled when the loop stops may never be called.
        while not done.wait(0.005) and loop.is_running() and time.monotonic() < deadline:
            pass
