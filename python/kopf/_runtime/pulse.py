"""Whether an operator has anything to do right now. It owns the count of its open cycles, for those who wait
until there are none; it must not know what the cycles are about.

The pulse is given to an operator by a context variable, since only those who test it take one.
"""

from __future__ import annotations

import contextvars
import threading
import time


class Pulse:
    """Counts the cycles that are open in one operator; safe to be asked from other threads."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()
        self._open: set[int] = set()
        self._beats = 0
        self._connected = threading.Event()

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
            self._beats += 1
            self._changed.notify_all()

    def ended(self, cycle: int) -> None:
        """What came of it is written to the object."""
        with self._changed:
            self._open.discard(cycle)
            self._beats += 1
            self._changed.notify_all()

    @property
    def beats(self) -> int:
        """How often anything has begun or ended so far."""
        return self._beats

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


pulse_var: contextvars.ContextVar[Pulse | None] = contextvars.ContextVar("pulse_var", default=None)
