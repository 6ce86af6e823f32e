"""How time passes in a cluster in memory, and for the operators in it: at once, moment after moment, and each
moment with all that comes of it. It owns the knowledge of whether anything happens there, not of what.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import time
from collections.abc import Callable, Iterator

from kopf._testing.idle_tracker import Pulse
from kopf._testing.virtual_clock import SECOND, VirtualTime, virtual_time

# How long nothing must happen, if it cannot be known for sure that nothing does: in real seconds.
PAUSE = 0.05
# For how long we look away, if something does: in real seconds.
BLINK = 0.0005

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Passage:
    """The time of one cluster and of its operators. In fact, it is that of the process: there is only one."""

    def __init__(self, trace: Callable[[], object]) -> None:
        super().__init__()
        self._trace = trace
        self._pulses: list[Pulse] = []
        self._touched = False

    @functools.cached_property
    def time(self) -> VirtualTime:
        """What the operators are to wait in."""
        return virtual_time()

    @property
    def now(self) -> datetime.datetime:
        """The present moment."""
        return EPOCH + datetime.timedelta(microseconds=self.time.now)

    @contextlib.contextmanager
    def attended_by(self, pulse: Pulse) -> Iterator[None]:
        """Wait for this operator, too, for as long as the block lasts."""
        self._pulses.append(pulse)
        try:
            yield
        finally:
            self._pulses.remove(pulse)

    def freeze(self) -> None:
        """Stop time where it is."""
        self._touched = True
        self.time.freeze()

    def thaw(self) -> None:
        """Let time go on from where it is."""
        self.time.thaw()

    def reset(self) -> None:
        """Give the process its real time back, if it was taken away from here."""
        if self._touched:
            self._touched = False
            self.time.reset()

    def advance(self, seconds: float, timeout: float) -> None:
        """Let so much time pass at once."""
        until = time.monotonic() + timeout
        goes = not self.time.frozen
        self.freeze()
        target = self.time.now + round(seconds * SECOND)
        try:
            self.settle(timeout)
            while self.time.leap(target):
                self.settle(until - time.monotonic())
            self.settle(until - time.monotonic())
        except TimeoutError:
            left = (target - self.time.now) / SECOND
            raise TimeoutError(
                f"Of {seconds} seconds to pass, {left} are left after {timeout} seconds of real time: there"
                " is more to be done in them, or a handler does not return."
            ) from None
        finally:
            if goes:
                self.thaw()

    def pass_until(self, done: Callable[[], bool], timeout: float) -> None:
        """If time stands still, let it pass until it is done: somebody waits for that outside of time."""
        until = time.monotonic() + timeout
        while self.time.frozen and not done() and time.monotonic() < until:
            with contextlib.suppress(TimeoutError):
                self.settle(min(1.0, until - time.monotonic()))
                if not done():
                    self.time.leap()

    def settle(self, timeout: float) -> None:
        """Wait until nothing happens, neither in the operators nor in the server nor between them.

        Whatever waits for a moment is nothing. What daemons do that do not wait for their end, is not known:
        then nothing must be seen for a while. Likewise if others keep the engines of this process busy.
        """
        until = time.monotonic() + timeout
        since, before, stills = time.monotonic(), self._state(), 0
        while stills < 2:
            now = time.monotonic()
            if now > until:
                raise TimeoutError(f"The operator was not quiet in {timeout} seconds.")
            still = self.time.is_still
            for pulse in self._pulses:
                pulse.turn(until - now)
            state = self._state()
            occupied = [pulse for pulse in self._pulses if pulse.is_open]
            if state != before or occupied or self.time.is_busy:
                since, before, stills = time.monotonic(), state, 0
                if occupied:
                    occupied[0].wait_for_beat(BLINK * 4)
                elif not still:
                    time.sleep(BLINK)
                continue
            waited = time.monotonic() - since >= PAUSE
            if waited:
                return
            sure = still and not any(pulse.is_awake for pulse in self._pulses)
            stills = stills + 1 if sure else 0
            if not sure:
                time.sleep(BLINK)

    def _state(self) -> object:
        return self._trace(), [pulse.beats for pulse in self._pulses]
