"""The time of this process as tests stop it and move it. It owns those in Python who wait for its moments;
those in the engine wait in the native time, which is the same one. It must not know what anybody waits for.

Operators in production have none: they wait in real time.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from kopf._runtime import bridge

SECOND = 1_000_000


class VirtualTime:
    """Moves all clocks of the process; moments are in microseconds since the epoch."""

    def __init__(self) -> None:
        super().__init__()
        self._native = bridge.VirtualTime()
        self._changed = threading.Condition()
        self._sleepers: dict[int, tuple[int, Callable[[], None], Callable[[], None]]] = {}
        self._numbers = itertools.count()
        self.frozen = False

    @property
    def now(self) -> int:
        """The present moment."""
        return self._native.now

    @property
    def is_still(self) -> bool:
        """Whether nothing happens in the engines and servers, and nothing is on its way between them."""
        return self._native.is_still()

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
        """Let time go on from where it is."""
        self._native.thaw()
        self.frozen = False
        self._wake(None)

    def reset(self) -> None:
        """Go with real time again, as if nothing had been."""
        self._native.reset()
        self.frozen = False
        self._wake(None)

    def leap(self, limit: int | None = None) -> bool:
        """Move frozen time to the next moment for which anybody waits, but not beyond the limit; whether
        anybody does. Without a limit, it does not move if nobody waits.
        """
        with self._changed:
            ours = min((due for due, _, _ in self._sleepers.values()), default=None)
        if limit is None:
            theirs = self._native.next
            dues = [due for due in (ours, theirs) if due is not None]
            return bool(dues) and self.leap(min(dues))
        target = limit if ours is None else min(limit, ours)
        waits = self._native.leap(target)
        self._wake(self.now)
        return waits or (ours is not None and ours <= limit)

    def _wake(self, until: int | None) -> None:
        with self._changed:
            if until is None:  # their moments have not come, but they are to look at the time again
                calls = [ring for _, ring, _ in self._sleepers.values()]
            else:
                due = [it for it, (at, _, _) in self._sleepers.items() if at <= until]
                due.sort(key=lambda it: self._sleepers[it][0])
                left = [self._sleepers.pop(it) for it in due]
                calls = [call for _, ring, woken in left for call in (woken, ring)]
        for call in calls:
            call()
        self.tell()

    def tell(self) -> None:
        """Let those who wait in threads look again: what they wait for may be there."""
        with self._changed:
            self._changed.notify_all()

    @contextlib.contextmanager
    def _sleeping(
        self, due: int | None, ring: Callable[[], None], woken: Callable[[], None]
    ) -> Iterator[None]:
        number = next(self._numbers)
        if due is not None:
            with self._changed:
                self._sleepers[number] = (due, ring, woken)
        try:
            yield
        finally:
            with self._changed:
                self._sleepers.pop(number, None)

    def _left(self, due: int | None) -> float | None:
        """Real seconds until the moment; none if it does not come by itself."""
        return None if due is None or self.frozen else max(0.0, (due - self.now) / SECOND)

    def wait_in_thread(
        self, holds: Callable[[], bool], timeout: float | None, woken: Callable[[], None]
    ) -> None:
        """Block the thread until it holds, or until the time is over."""
        due = None if timeout is None else self.now + int(timeout * SECOND)
        while not holds() and (due is None or self.now < due):
            with self._sleeping(due, self.tell, woken), self._changed:
                if not holds() and (due is None or self.now < due):
                    self._changed.wait(self._left(due))

    async def wait_in_loop(
        self, future: asyncio.Future[Any], timeout: float | None, woken: Callable[[], None]
    ) -> None:
        """Wait in the current event loop until the future is done, or until the time is over."""
        due = None if timeout is None else self.now + int(timeout * SECOND)
        loop = asyncio.get_running_loop()
        while not future.done() and (due is None or self.now < due):
            bell: asyncio.Future[None] = loop.create_future()
            with self._sleeping(due, functools.partial(_ring, loop, bell), woken):
                if due is None or self.now < due:
                    await asyncio.wait(
                        [future, bell], timeout=self._left(due), return_when=asyncio.FIRST_COMPLETED
                    )

    async def sleep(self, seconds: float) -> None:
        """Wait in the current event loop for so long."""
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await self.wait_in_loop(never, seconds, lambda: None)


def _ring(loop: asyncio.AbstractEventLoop, bell: asyncio.Future[None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(lambda: None if bell.done() else bell.set_result(None))


@functools.cache
def virtual_time() -> VirtualTime:
    """The only one of the process."""
    return VirtualTime()
