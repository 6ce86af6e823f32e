"""Calls synchronous functions in an executor and brings the results back to the event loop.

Functions that return at about the same time wake the event loop once, not once each. In the default pool, a
thread goes on with the next waiting function instead of each one being submitted.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextlib
import contextvars
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from kopf._intents.settings import HandlerPool

TURN = 0.02
"""For how long (seconds) a thread of the default pool takes calls before it is submitted again."""


class Threads:
    """The calls of functions in threads; one per event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        super().__init__()
        self._loop = loop if loop is not None else asyncio.get_running_loop()
        self._returned: collections.deque[ThreadCall] = collections.deque()
        # It is locked from the moment when the loop is woken until it collects: a flag with test-and-set.
        self._is_woken = threading.Lock()
        self._pending: dict[ThreadCall, asyncio.Task[Any] | None] = {}
        self._queue: _Queue | None = None

    async def call(
        self,
        executor: concurrent.futures.Executor,
        fn: Callable[..., Any],
        kwargs: Mapping[str, Any],
        limit: int | None = None,
    ) -> Any:
        """Call the function in a copy of the context. A cancellation is postponed until it returns.

        `limit` is how many of such calls are in the executor at the same time; None: as it decides.
        """
        call = ThreadCall(self, fn, kwargs, self._loop.create_future())
        self._submit(call, executor, limit)
        self._pending[call] = asyncio.current_task()
        try:
            await call.future
        except asyncio.CancelledError:
            # Threads cannot be cancelled. Leaving one behind with its arguments is worse than waiting.
            while not call.finished and not call.abandoned:
                call.future = self._loop.create_future()
                with contextlib.suppress(asyncio.CancelledError):
                    await call.future
            raise
        finally:
            del self._pending[call]
        if call.error is not None:
            error, call.error = call.error, None
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame
        return call.result

    def abandon(self, tasks: Collection[asyncio.Task[Any]]) -> None:
        """Cancel the calls in these tasks without waiting until their functions return: the operator ends."""
        for call, task in self._pending.items():
            if task in tasks:
                call.abandoned = True
                call.future.cancel()

    def _submit(self, call: ThreadCall, executor: concurrent.futures.Executor, limit: int | None) -> None:
        is_default = type(executor) is HandlerPool
        size = executor.size if isinstance(executor, HandlerPool) and is_default else limit
        if size is None:
            executor.submit(call.run)
        else:
            if self._queue is None or self._queue.executor is not executor:
                # Executors of users get every call: they may count, prioritise, or share them.
                self._queue = _Queue(executor, TURN if is_default else 0)
            self._queue.put(call, size)

    def returned(self, call: ThreadCall) -> None:
        """Take a finished call, and wake the loop; it is the only method that is called from threads."""
        self._returned.append(call)
        if self._is_woken.acquire(blocking=False):
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nothing waits for results
                self._loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        # Released first: a call that is appended later than it is looked for here wakes the loop again.
        self._is_woken.release()
        for _ in range(len(self._returned)):
            call = self._returned.popleft()
            if not call.future.done():
                call.future.set_result(None)


class _Queue:
    """The calls that wait for the threads of one executor.

    To submit each of them costs more than most of them do. As many turns are submitted as there can be
    threads, at most; more would only wait.
    """

    def __init__(self, executor: concurrent.futures.Executor, turn: float) -> None:
        super().__init__()
        self.executor = executor
        self._turn_time = turn
        self._size = 0
        self._calls: collections.deque[ThreadCall] = collections.deque()
        self._turns = 0
        self._lock = threading.Lock()

    def put(self, call: ThreadCall, size: int) -> None:
        """Add a call, of which so many run at the same time."""
        with self._lock:
            self._size = size
            self._calls.append(call)
            if self._turns >= size:
                return
            self._turns += 1
        try:
            self.executor.submit(self._turn)
        except BaseException:
            with self._lock:
                self._turns -= 1
                if call not in self._calls:
                    return  # another turn has taken it
                self._calls.remove(call)
            raise

    def _turn(self) -> None:
        until = time.monotonic() + self._turn_time
        while True:
            with self._lock:
                if not self._calls or self._turns > self._size:
                    self._turns -= 1
                    return
                call = self._calls.popleft()
            call.run()
            if time.monotonic() >= until and self._calls:
                try:
                    self.executor.submit(self._turn)
                    return
                except RuntimeError:
                    # It is shut down: what was put before is called nevertheless, as executors do.
                    until = float("inf")


class ThreadCall:
    """One call of one function."""

    __slots__ = ("abandoned", "context", "error", "finished", "fn", "future", "kwargs", "result", "threads")

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
        self.abandoned = False

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
