"""Synchronous functions in an executor. It owns their way there and back; it must not know what they are.

Functions that return at about the same time wake the event loop once, not once each. Those that are called at
about the same time share the threads' turns: a thread goes on with the next one while there are any.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextlib
import contextvars
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

TURN = 0.02
"""For how long (seconds) a thread goes on with our functions before others get it: it may be shared."""


class Threads:
    """The way of functions to threads; one per event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        super().__init__()
        self._loop = loop if loop is not None else asyncio.get_running_loop()
        self._returned: collections.deque[ThreadCall] = collections.deque()
        self._lane: _Lane | None = None

    async def call(
        self, executor: concurrent.futures.Executor, fn: Callable[..., Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Call the function in a copy of the context. A cancellation is postponed until it returns."""
        call = ThreadCall(self, fn, kwargs, self._loop.create_future())
        # Others may count what is submitted to executors of theirs, or have limits of their own.
        if type(executor) is concurrent.futures.ThreadPoolExecutor:
            if self._lane is None or self._lane.executor is not executor:
                self._lane = _Lane(executor)
            self._lane.put(call)
        else:
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


class _Lane:
    """The calls that wait for the threads of one executor.

    To submit each of them costs more than most of them do. As many turns are submitted as there can be
    threads; more would only wait.
    """

    def __init__(self, executor: concurrent.futures.ThreadPoolExecutor) -> None:
        super().__init__()
        self.executor = executor
        self._calls: collections.deque[ThreadCall] = collections.deque()
        self._turns = 0
        self._lock = threading.Lock()

    def put(self, call: ThreadCall) -> None:
        """Have it called as soon as there is a thread."""
        with self._lock:
            self._calls.append(call)
            if self._turns >= self.executor._max_workers:
                return
            self._turns += 1
        try:
            self.executor.submit(self._turn)
        except BaseException:
            with self._lock:
                self._turns -= 1
                if call not in self._calls:
                    return  # somebody else has taken it
                self._calls.remove(call)
            raise

    def _turn(self) -> None:
        until = time.monotonic() + TURN
        while True:
            with self._lock:
                if not self._calls or self._turns > self.executor._max_workers:
                    self._turns -= 1
                    return
                call = self._calls.popleft()
            call.run()
            if time.monotonic() > until and self._calls:
                try:
                    self.executor.submit(self._turn)
                    return
                except RuntimeError:
                    # It is shut down: what was put before is called nevertheless, as executors do.
                    until = float("inf")


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
