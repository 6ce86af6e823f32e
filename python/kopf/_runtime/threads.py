"""Synchronous functions in an executor. It owns their way there and back; it must not know what they are.

Functions that return at about the same time wake the event loop once, not once each.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextlib
import contextvars
from collections.abc import Callable, Mapping
from typing import Any


class Threads:
    """The way of functions to threads; one per event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        super().__init__()
        self._loop = loop if loop is not None else asyncio.get_running_loop()
        self._returned: collections.deque[ThreadCall] = collections.deque()

    async def call(
        self, executor: concurrent.futures.Executor, fn: Callable[..., Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Call the function in a copy of the context. A cancellation is postponed until it returns."""
        call = ThreadCall(self, fn, kwargs, self._loop.create_future())
        executor.submit(call.run)
        try:
            await call.future
        except asyncio.CancelledError:
            # Threads cannot be cancelled. Leaving one behind with its arguments is worse than waiting.
            while not call.finished:
                call.future = self._loop.create_future()
                with contextlib.suppress(asyncio.CancelledError):
                    await call.future
            raise
        if call.error is not None:
            raise call.error
        return call.result

    def returned(self, call: ThreadCall) -> None:
        """Tell the loop about a finished call; it is the only method that is called from threads."""
        # Appending first and checking then: at worst, the loop is woken once too often, but never too rarely.
        self._returned.append(call)
        if len(self._returned) == 1:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        for _ in range(len(self._returned)):
            call = self._returned.popleft()
            if not call.future.done():
                call.future.set_result(None)
        # Those that came in the meantime saw a non-empty queue and relied on this very collection.
        if self._returned:
            self._loop.call_soon(self._collect)


class ThreadCall:
    """One call of one function."""

    __slots__ = ("context", "error", "finished", "fn", "future", "kwargs", "result", "threads")

    def __init__(
        self,
        threads: Threads,
        fn: Callable[..., Any],
        kwargs: Mapping[str, Any],
        future: asyncio.Future[None],
    ) -> None:
        self.threads = threads
        self.fn = fn
        self.kwargs = kwargs
        self.future = future
        self.context = contextvars.copy_context()
        self.result: Any = None
        self.error: BaseException | None = None
        self.finished = False

    def run(self) -> None:
        """Call the function, here in the thread."""
        try:
            self.result = self.context.run(self.fn, **self.kwargs)
        except StopIteration as e:
            # It cannot be raised into a coroutine.
            self.error = RuntimeError(f"The function raised StopIteration: {e}")
        except BaseException as e:
            self.error = e
        self.finished = True
        self.threads.returned(self)
