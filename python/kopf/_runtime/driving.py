"""How coroutines are run without a task for each of them. It owns the ways to drive them; it must not know
what they do."""

from __future__ import annotations

import asyncio
import collections
import contextvars
from collections.abc import Callable, Coroutine, Generator
from typing import Any


def drive(
    coroutine: Coroutine[asyncio.Future[Any], None, None], context: contextvars.Context | None = None
) -> None:
    """Run a coroutine which awaits nothing but bare futures: at once, as far as it goes; then as they are
    ready.

    It costs less than a task. It cannot be cancelled, and there is no current task in it. Unless a context is
    given, it runs in a copy of the current one.
    """
    context = context if context is not None else contextvars.copy_context()

    def advance(_: Any = None) -> None:
        try:
            future = coroutine.send(None)
        except (StopIteration, asyncio.CancelledError):
            return
        # This is how a task tells that it has got the future that was yielded to it.
        future._asyncio_future_blocking = False
        future.add_done_callback(advance, context=context)

    context.run(advance)


class Relay:
    """Runs coroutines in real tasks, but in as few as possible: those that end without waiting share one.

    As soon as a coroutine has to wait, the task is its own, and the others go on in another one. So each of
    them may rely on its current task: it can be cancelled, have timeouts, and so on. Each has its own
    context.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._queue: collections.deque[_Leg] = collections.deque()
        self._carried = False  # whether there is a task for the queue

    def add(
        self,
        coroutine: Coroutine[Any, Any, None],
        context: contextvars.Context,
        waits: Callable[[asyncio.Task[Any] | None], None],
    ) -> None:
        """Run the coroutine soon; if it has to wait, tell which task it has got."""
        self._queue.append(_Leg(self, coroutine, context, waits))
        if not self._carried:
            self._carry_on()

    def _carry_on(self) -> None:
        self._carried = bool(self._queue)
        if self._carried:
            self._loop.create_task(self._carry())

    async def _carry(self) -> None:
        leg = None
        try:
            while self._queue:
                leg = self._queue.popleft()
                await leg
                if leg.waited:
                    return
            self._carried = False
        except BaseException:
            # It is the end of this task, but not of the others.
            if leg is None or not leg.waited:
                self._carry_on()
            raise


class _Leg:
    """One coroutine in its context."""

    __slots__ = ("_context", "_coroutine", "_relay", "_waits", "waited")

    def __init__(
        self,
        relay: Relay,
        coroutine: Coroutine[Any, Any, None],
        context: contextvars.Context,
        waits: Callable[[asyncio.Task[Any] | None], None],
    ) -> None:
        self._relay = relay
        self._coroutine = coroutine
        self._context = context
        self._waits = waits
        self.waited = False

    def __await__(self) -> Generator[Any, Any, None]:
        run, coroutine = self._context.run, self._coroutine
        try:
            awaited = run(coroutine.send, None)
        except StopIteration:
            return
        self.waited = True
        self._waits(asyncio.current_task())
        self._relay._carry_on()
        while True:
            try:
                value = yield awaited
            except BaseException as e:
                try:
                    awaited = run(coroutine.throw, e)
                except StopIteration:
                    return
            else:
                try:
                    awaited = run(coroutine.send, value)
                except StopIteration:
                    return
