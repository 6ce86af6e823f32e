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

from kopf._testing.virtual_clock import VirtualTime

# A callback of the loop can call for another one, and so on: so often we let them.
TURNS = 4


class Pulse:
    """Counts the cycles and calls that are open in one operator; safe to be asked from other threads."""

    def __init__(self, time: VirtualTime | None = None) -> None:
        super().__init__()
        self.time = time
        """What the operator waits for moments in; real time if there is none."""
        self._changed = threading.Condition()
        self._open: set[int] = set()
        self._asked: set[int] = set()
        self._awake: set[int] = set()
        self._beats = 0
        self._connected = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pending: Callable[[], int] = lambda: 0
        self._engaged = False

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Learn where the handlers run."""
        self._loop = loop

    def engaged(self, pending: Callable[[], int]) -> None:
        """There is an engine, which is to be asked for what waits in front of Python."""
        self._pending = pending
        self._engaged = True

    def connected(self) -> None:
        """The engine has begun to talk to the cluster."""
        self._connected.set()

    def wait_until_connected(self, timeout: float) -> bool:
        """Wait until the engine talks to the cluster: before that, there is nothing to be still about."""
        return self._connected.wait(timeout)

    def began(self, cycle: int) -> None:
        """Something is asked of Python for an object."""
        with self._changed:
            self._open.add(cycle)
            self._asked.add(cycle)
            self._beats += 1
            self._changed.notify_all()

    def ended(self, cycle: int) -> None:
        """What came of it is written to the object."""
        with self._changed:
            self._open.discard(cycle)
            self._asked.discard(cycle)
            self._beats += 1
            self._changed.notify_all()

    def replied(self, cycle: int) -> None:
        """It is done in Python; what came of it is still to be written."""
        with self._changed:
            self._asked.discard(cycle)
            self._beats += 1
            self._changed.notify_all()

    def awoke(self, run: int) -> None:
        """A daemon does something, for as long as it likes to."""
        with self._changed:
            self._awake.add(run)
            self._beats += 1
            self._changed.notify_all()

    def rested(self, run: int) -> None:
        """A daemon waits for a moment or for its end, or has ended."""
        with self._changed:
            self._awake.discard(run)
            # A timer may wait for its end, too.
            self._open.discard(run)
            self._asked.discard(run)
            self._beats += 1
            self._changed.notify_all()

    @property
    def beats(self) -> int:
        """How often anything has begun or ended so far."""
        return self._beats

    @property
    def is_open(self) -> bool:
        """Whether there is anything that ends by itself, and soon; if time stands still, then without it."""
        frozen = self.time is not None and self.time.frozen
        beginning = self._engaged and not self._connected.is_set()
        return beginning or bool(self._asked if frozen else self._open) or self._pending() > 0

    @property
    def is_awake(self) -> bool:
        """Whether there are daemons of which is not known what they do."""
        return bool(self._awake)

    def wait_until_still(self, pause: float, timeout: float) -> bool:
        """Wait until nothing is open and nothing new begins for so long; whether that has come in time."""
        until = time.monotonic() + timeout
        with self._changed:
            while True:
                left = until - time.monotonic()
                if left <= 0:
                    return False
                beats, idle = self._beats, not self._open
                told = self._changed.wait(min(pause, left) if idle else left)
                if idle and not told and beats == self._beats and left >= pause:
                    return True

    def wait_for_beat(self, timeout: float) -> None:
        """Wait until anything begins or ends."""
        with self._changed:
            self._changed.wait(timeout)

    def turn(self, timeout: float) -> None:
        """Let everything be done that is ready in the operator's loop."""
        loop = self._loop
        if loop is None:
            return
        done = threading.Event()

        def again(turns: int) -> None:
            if turns and not loop.is_closed():
                loop.call_soon(again, turns - 1)
            else:
                done.set()

        try:
            loop.call_soon_threadsafe(again, TURNS)
        except RuntimeError:  # it is closed: there is nothing ready any more
            return
        until = time.monotonic() + timeout
        # The last one of a loop's life may never be called.
        while not done.wait(0.005) and loop.is_running() and time.monotonic() < until:
            pass


pulse_var: contextvars.ContextVar[Pulse | None] = contextvars.ContextVar("pulse_var", default=None)
