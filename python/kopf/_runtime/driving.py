"""How coroutines are run without a task for each of them. It owns the ways to drive them; it must not know
what they do."""

from __future__ import annotations

import asyncio
import contextvars
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Callable, Coroutine
from typing import Any

Waits = Callable[[asyncio.Task[Any] | None], None]


def drive(
    coroutine: Coroutine[asyncio.Future[Any], None, None], context: contextvars.Context | None = None
) -> None:
    """Run a coroutine which awaits nothing but bare futures: at once, as far as it goes; then as they are
    ready.

    It costs less than a task. It cannot be cancelled, and there is no current task in it. Unless a context is
    given, it runs in a copy of the current one.
    """
    context = context if context is not None else contextvars.copy_context()
    context.run(_Driver(coroutine, context).advance)


class _Driver:
    """Drives one coroutine. Not a closure: that would refer to itself, and wait for the garbage collector."""

    __slots__ = ("_context", "_coroutine")

    def __init__(
        self, coroutine: Coroutine[asyncio.Future[Any], None, None], context: contextvars.Context
    ) -> None:
        self._coroutine = coroutine
        self._context = context

    def advance(self, _: Any = None) -> None:
        """Run it as far as it goes."""
        try:
            future = self._coroutine.send(None)
        except (StopIteration, asyncio.CancelledError):
            return
        # This is how a task tells that it has got the future that was yielded to it.
        future._asyncio_future_blocking = False
        future.add_done_callback(self.advance, context=self._context)


class Relay:
    """Runs coroutines in real tasks, at once, but in as few as possible: those that end without waiting share
    one, which stands by.

    As soon as a coroutine has to wait, the task is its own, and the others go on in another one. So each of
    them may rely on its current task: it can be cancelled, have timeouts, and so on. Each has its own
    context.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._idle: _Carrier | None = None

    def add(self, coroutine: Coroutine[Any, Any, None], context: contextvars.Context, waits: Waits) -> None:
        """Run the coroutine as far as it goes; if it has to wait, tell which task it has got."""
        loop, carrier, self._idle = self._loop, self._idle, None
        if carrier is None or carrier.task.cancelling() or carrier.task.done():
            carrier = _Carrier(loop)
        task, outer = carrier.task, asyncio.current_task(loop)
        if outer is not None:
            _leave_task(loop, outer)
        _enter_task(loop, task)
        try:
            awaited = context.run(coroutine.send, None)
        except (StopIteration, asyncio.CancelledError):
            self._idle = carrier
        except BaseException:
            self._idle = carrier
            raise
        else:
            carrier.take(coroutine, context, awaited)
            waits(task)
        finally:
            _leave_task(loop, task)
            if outer is not None:
                _enter_task(loop, outer)

    def close(self) -> list[asyncio.Task[Any]]:
        """Send off the task that stands by, if there is one; its end is to be waited for."""
        carrier, self._idle = self._idle, None
        if carrier is None or not carrier.task.cancel():
            return []
        return [carrier.task]


class _Carrier(Coroutine[Any, Any, None]):
    """What is in a task of the relay: nothing at first, then a coroutine that has begun and waits."""

    __slots__ = ("_awaited", "_context", "_coroutine", "_loop", "_resting", "task")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._coroutine: Coroutine[Any, Any, None] | None = None
        self._context: contextvars.Context | None = None
        self._awaited: Any = None  # what the task does not know yet that it waits for
        self._resting: asyncio.Future[None] | None = None
        self.task: asyncio.Task[None] = asyncio.Task(self, loop=loop)

    def take(self, coroutine: Coroutine[Any, Any, None], context: contextvars.Context, awaited: Any) -> None:
        """Go on with a coroutine that waits."""
        self._coroutine, self._context, self._awaited = coroutine, context, awaited
        # From now on, an error in the task keeps this alive: they are not to keep each other.
        del self.task
        if self._resting is not None and not self._resting.done():
            self._resting.set_result(None)

    def send(self, value: None, /) -> Any:
        """Go on, as the task says: with what was awaited while the task was not aware, at first."""
        coroutine, context, awaited = self._coroutine, self._context, self._awaited
        if coroutine is None or context is None:
            self._resting = self._loop.create_future()
            self._resting._asyncio_future_blocking = True  # this is how a task is told to wait
            return self._resting
        if awaited is not None:
            self._awaited = None
            return awaited
        return context.run(coroutine.send, value)

    def throw(self, *raised: Any) -> Any:
        """Raise it where the coroutine waits; a cancellation goes to what it waits for, as in any task."""
        coroutine, context, awaited = self._coroutine, self._context, self._awaited
        error = raised[1] if len(raised) > 1 and raised[1] is not None else raised[0]
        if coroutine is None or context is None:
            raise error
        self._awaited = None
        cancel = getattr(awaited, "cancel", None)
        if isinstance(error, asyncio.CancelledError) and cancel is not None and cancel():
            return awaited
        return context.run(coroutine.throw, error)

    def close(self) -> None:
        """The task was given up: let its coroutine know."""
        if self._coroutine is not None:
            self._coroutine.close()

    def __await__(self) -> Any:
        raise TypeError("It is only for its task.")
