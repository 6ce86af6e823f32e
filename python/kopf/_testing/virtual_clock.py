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


class VirtualClock:
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
    def is_idle(self) -> bool:
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

    def jump_to_next(self, limit: int | None = None) -> bool:
        """Move frozen time to the next moment for which anybody waits, but not beyond the limit; whether
        anybody does. Without a limit, it does not move if nobody waits.
        """
        with self._changed:
            next_in_python = min((due for due, _, _ in self._sleepers.values()), default=None)
        if limit is None:
            next_in_engine = self._native.next
            dues = [due for due in (next_in_python, next_in_engine) if due is not None]
            return bool(dues) and self.jump_to_next(min(dues))
        target = limit if next_in_python is None else min(limit, next_in_python)
        waits = self._native.leap(target)
        self._wake(self.now)
        return waits or (next_in_python is not None and next_in_python <= limit)

    def _wake(self, moment: int | None) -> None:
        with self._changed:
            if moment is None:  # their moments have not come, but they are to look at the time again
                calls = [wake for _, wake, _ in self._sleepers.values()]
            else:
                due = [it for it, (at, _, _) in self._sleepers.items() if at <= moment]
                due.sort(key=lambda it: self._sleepers[it][0])
                woken_sleepers = [self._sleepers.pop(it) for it in due]
                calls = [call for _, wake, on_wake in woken_sleepers for call in (on_wake, wake)]
        for call in calls:
            call()
        self.notify()

    def notify(self) -> None:
        """Let those who wait in threads look again: what they wait for may be there."""
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
        """Real seconds until the moment; none if it does not come by itself."""
        return None if due is None or self.frozen else max(0.0, (due - self.now) / SECOND)

    def wait_in_thread(
        self, predicate: Callable[[], bool], timeout: float | None, on_wake: Callable[[], None]
    ) -> None:
        """Block the thread until it holds, or until the time is over."""
        due = None if timeout is None else self.now + int(timeout * SECOND)
        while not predicate() and (due is None or self.now < due):
            with self._register_sleeper(due, self.notify, on_wake), self._changed:
                if not predicate() and (due is None or self.now < due):
                    self._changed.wait(self._remaining(due))

    async def wait_in_loop(
        self, future: asyncio.Future[Any], timeout: float | None, on_wake: Callable[[], None]
    ) -> None:
        """Wait in the current event loop until the future is done, or until the time is over."""
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
        """Wait in the current event loop for so long."""
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await self.wait_in_loop(never, seconds, lambda: None)


def _wake_loop(loop: asyncio.AbstractEventLoop, wakeup: asyncio.Future[None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(lambda: None if wakeup.done() else wakeup.set_result(None))


@functools.cache
def virtual_clock() -> VirtualClock:
    """The only one of the process."""
    return VirtualClock()
