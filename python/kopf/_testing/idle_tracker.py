"""Tracker of the work of one operator: whether it is idle, for tests that wait for that."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from kopf._testing.clock import VirtualClock

# A callback of the loop can schedule another one, and so on: this many times are awaited.
LOOP_PASSES = 4


class IdleTracker:
    """Counts the handlings and calls that are in progress in one operator; can be used in any thread."""

    def __init__(self, clock: VirtualClock | None = None) -> None:
        super().__init__()
        self.clock: VirtualClock | None = clock
        """The clock of the operator; None for real time."""
        self._changed = threading.Condition()
        self._open_work: set[int] = set()
        self._awaiting_reply: set[int] = set()
        self._running_daemons: set[int] = set()
        self._activity_count = 0
        self._connected = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pending: Callable[[], int] = lambda: 0
        self._has_engine = False

    def set_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the event loop of the handlers."""
        self._loop = loop

    def set_engine(self, pending: Callable[[], int]) -> None:
        """Set the function that counts the items that the engine has ready for Python."""
        self._pending = pending
        self._has_engine = True

    def engine_connected(self) -> None:
        """The engine has sent its first request."""
        self._connected.set()

    def wait_until_connected(self, timeout: float) -> bool:
        """Wait until the engine has sent its first request; false on timeout (seconds)."""
        return self._connected.wait(timeout)

    def work_started(self, work_id: int) -> None:
        """The engine waits for Python."""
        with self._changed:
            self._open_work.add(work_id)
            self._awaiting_reply.add(work_id)
            self._activity_count += 1
            self._changed.notify_all()

    def work_finished(self, work_id: int) -> None:
        """The outcome is written to the object."""
        with self._changed:
            self._open_work.discard(work_id)
            self._awaiting_reply.discard(work_id)
            self._activity_count += 1
            self._changed.notify_all()

    def reply_sent(self, work_id: int) -> None:
        """Python has replied; the outcome is not written to the object yet."""
        with self._changed:
            self._awaiting_reply.discard(work_id)
            self._activity_count += 1
            self._changed.notify_all()

    def daemon_running(self, daemon_id: int) -> None:
        """A daemon executes its own code."""
        with self._changed:
            self._running_daemons.add(daemon_id)
            self._activity_count += 1
            self._changed.notify_all()

    def daemon_waiting(self, daemon_id: int) -> None:
        """A daemon waits for its flag, or has ended."""
        with self._changed:
            self._running_daemons.discard(daemon_id)
            # A timer may wait for its end, too.
            self._open_work.discard(daemon_id)
            self._awaiting_reply.discard(daemon_id)
            self._activity_count += 1
            self._changed.notify_all()

    @property
    def activity_count(self) -> int:
        """The number of starts and ends so far."""
        return self._activity_count

    @property
    def is_busy(self) -> bool:
        """Whether any work is in progress that ends by itself, in frozen time too if time is frozen."""
        frozen = self.clock is not None and self.clock.frozen
        is_starting = self._has_engine and not self._connected.is_set()
        return is_starting or bool(self._awaiting_reply if frozen else self._open_work) or self._pending() > 0

    @property
    def has_running_daemons(self) -> bool:
        """Whether any daemon executes its own code."""
        return bool(self._running_daemons)

    def wait_until_idle(self, quiet_period: float, timeout: float) -> bool:
        """Wait until no work is in progress or starts for the quiet period (seconds); false on timeout."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    return False
                activity_count, idle = self._activity_count, not self._open_work
                changed = self._changed.wait(min(quiet_period, remaining) if idle else remaining)
                if (
                    idle
                    and not changed
                    and activity_count == self._activity_count
                    and remaining >= quiet_period
                ):
                    return True

    def wait_for_activity(self, timeout: float) -> None:
        """Wait until any work starts or finishes, at most `timeout` seconds."""
        with self._changed:
            self._changed.wait(timeout)

    def flush_loop(self, timeout: float) -> None:
        """Let the operator's event loop execute all callbacks that are ready."""
        loop = self._loop
        if loop is None:
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
