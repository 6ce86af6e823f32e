"""Whether an operator has anything to do right now. It owns the count of its open cycles and calls, for those
who wait until there are none; it must not know what they are about.

The pulse is given to an operator by a context variable, since only those who test it take one. With it comes
the virtual time, if that can be moved.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable

from kopf._testing.virtual_clock import VirtualClock

# A callback of the loop can call for another one, and so on: so often we let them.
LOOP_PASSES = 4


class IdleTracker:
    """Counts the cycles and calls that are open in one operator; safe to be asked from other threads."""

    def __init__(self, time: VirtualClock | None = None) -> None:
        super().__init__()
        self.time = time
        """What the operator waits for moments in; real time if there is none."""
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
        """Learn where the handlers run."""
        self._loop = loop

    def set_engine(self, pending: Callable[[], int]) -> None:
        """There is an engine, which is to be asked for what waits in front of Python."""
        self._pending = pending
        self._has_engine = True

    def connected(self) -> None:
        """The engine has begun to talk to the cluster."""
        self._connected.set()

    def wait_until_connected(self, timeout: float) -> bool:
        """Wait until the engine talks to the cluster: before that, there is nothing to be still about."""
        return self._connected.wait(timeout)

    def work_started(self, work_id: int) -> None:
        """Something is asked of Python for an object."""
        with self._changed:
            self._open_work.add(work_id)
            self._awaiting_reply.add(work_id)
            self._activity_count += 1
            self._changed.notify_all()

    def work_finished(self, work_id: int) -> None:
        """What came of it is written to the object."""
        with self._changed:
            self._open_work.discard(work_id)
            self._awaiting_reply.discard(work_id)
            self._activity_count += 1
            self._changed.notify_all()

    def reply_sent(self, work_id: int) -> None:
        """It is done in Python; what came of it is still to be written."""
        with self._changed:
            self._awaiting_reply.discard(work_id)
            self._activity_count += 1
            self._changed.notify_all()

    def daemon_running(self, daemon_id: int) -> None:
        """A daemon does something, for as long as it likes to."""
        with self._changed:
            self._running_daemons.add(daemon_id)
            self._activity_count += 1
            self._changed.notify_all()

    def daemon_waiting(self, daemon_id: int) -> None:
        """A daemon waits for a moment or for its end, or has ended."""
        with self._changed:
            self._running_daemons.discard(daemon_id)
            # A timer may wait for its end, too.
            self._open_work.discard(daemon_id)
            self._awaiting_reply.discard(daemon_id)
            self._activity_count += 1
            self._changed.notify_all()

    @property
    def activity_count(self) -> int:
        """How often anything has begun or ended so far."""
        return self._activity_count

    @property
    def is_busy(self) -> bool:
        """Whether there is anything that ends by itself, and soon; if time stands still, then without it."""
        frozen = self.time is not None and self.time.frozen
        is_starting = self._has_engine and not self._connected.is_set()
        return is_starting or bool(self._awaiting_reply if frozen else self._open_work) or self._pending() > 0

    @property
    def has_running_daemons(self) -> bool:
        """Whether there are daemons of which is not known what they do."""
        return bool(self._running_daemons)

    def wait_until_idle(self, quiet_period: float, timeout: float) -> bool:
        """Wait until nothing is open and nothing new begins for so long; whether that has come in time."""
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
        """Wait until anything begins or ends."""
        with self._changed:
            self._changed.wait(timeout)

    def flush_loop(self, timeout: float) -> None:
        """Let everything be done that is ready in the operator's loop."""
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
        # The last one of a loop's life may never be called.
        while not done.wait(0.005) and loop.is_running() and time.monotonic() < deadline:
            pass


work_tracker_var: contextvars.ContextVar[IdleTracker | None] = contextvars.ContextVar(
    "pulse_var", default=None
)
