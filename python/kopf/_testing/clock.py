"""How time passes in a cluster in memory, and for the operators in it: at once, moment after moment, and each
moment with all that comes of it. It owns the knowledge of whether anything happens there, not of what.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import time
from collections.abc import Callable, Iterator

from kopf._testing.idle_tracker import IdleTracker
from kopf._testing.virtual_clock import SECOND, VirtualClock, virtual_clock

# How long nothing must happen, if it cannot be known for sure that nothing does: in real seconds.
QUIET_PERIOD = 0.05
# For how long we look away, if something does: in real seconds.
POLL_INTERVAL = 0.0005

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class ClockControl:
    """The time of one cluster and of its operators. In fact, it is that of the process: there is only one."""

    def __init__(self, activity_marker: Callable[[], object]) -> None:
        super().__init__()
        self._activity_marker = activity_marker
        self._trackers: list[IdleTracker] = []
        self._frozen_here = False

    @functools.cached_property
    def time(self) -> VirtualClock:
        """What the operators are to wait in."""
        return virtual_clock()

    @property
    def now(self) -> datetime.datetime:
        """The present moment."""
        return EPOCH + datetime.timedelta(microseconds=self.time.now)

    @contextlib.contextmanager
    def track(self, tracker: IdleTracker) -> Iterator[None]:
        """Wait for this operator, too, for as long as the block lasts."""
        self._trackers.append(tracker)
        try:
            yield
        finally:
            self._trackers.remove(tracker)

    def freeze(self) -> None:
        """Stop time where it is."""
        self._frozen_here = True
        self.time.freeze()

    def thaw(self) -> None:
        """Let time go on from where it is."""
        self.time.thaw()

    def reset(self) -> None:
        """Give the process its real time back, if it was taken away from here."""
        if self._frozen_here:
            self._frozen_here = False
            self.time.reset()

    def advance(self, seconds: float, timeout: float) -> None:
        """Let so much time pass at once."""
        deadline = time.monotonic() + timeout
        was_running = not self.time.frozen
        self.freeze()
        target = self.time.now + round(seconds * SECOND)
        try:
            self.wait_until_idle(timeout)
            while self.time.jump_to_next(target):
                self.wait_until_idle(deadline - time.monotonic())
            self.wait_until_idle(deadline - time.monotonic())
        except TimeoutError:
            remaining = (target - self.time.now) / SECOND
            raise TimeoutError(
                f"Of {seconds} seconds to pass, {remaining} are left after {timeout} seconds of real time: there"
                " is more to be done in them, or a handler does not return."
            ) from None
        finally:
            if was_running:
                self.thaw()

    def advance_until(self, done: Callable[[], bool], timeout: float) -> None:
        """If time stands still, let it pass until it is done: somebody waits for that outside of time."""
        deadline = time.monotonic() + timeout
        while self.time.frozen and not done() and time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                self.wait_until_idle(min(1.0, deadline - time.monotonic()))
                if not done():
                    self.time.jump_to_next()

    def wait_until_idle(self, timeout: float) -> None:
        """Wait until nothing happens, neither in the operators nor in the server nor between them.

        Whatever waits for a moment is nothing. What daemons do that do not wait for their end, is not known:
        then nothing must be seen for a while. Likewise if others keep the engines of this process busy.
        """
        deadline = time.monotonic() + timeout
        since, before, idle_rounds = time.monotonic(), self._state(), 0
        while idle_rounds < 2:
            now = time.monotonic()
            if now > deadline:
                raise TimeoutError(f"The operator was not quiet in {timeout} seconds.")
            idle = self.time.is_idle
            for tracker in self._trackers:
                tracker.flush_loop(deadline - now)
            state = self._state()
            busy = [tracker for tracker in self._trackers if tracker.is_busy]
            if state != before or busy or self.time.is_busy:
                since, before, idle_rounds = time.monotonic(), state, 0
                if busy:
                    busy[0].wait_for_activity(POLL_INTERVAL * 4)
                elif not idle:
                    time.sleep(POLL_INTERVAL)
                continue
            waited = time.monotonic() - since >= QUIET_PERIOD
            if waited:
                return
            certain = idle and not any(tracker.has_running_daemons for tracker in self._trackers)
            idle_rounds = idle_rounds + 1 if certain else 0
            if not certain:
                time.sleep(POLL_INTERVAL)

    def _state(self) -> object:
        return self._activity_marker(), [tracker.activity_count for tracker in self._trackers]
