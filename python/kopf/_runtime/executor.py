"""Calls of synchronous functions in an executor, with their results in the event loop.

Functions that return at about the same time wake the event loop once. In the default pool, a thread continues
with the next waiting function, so that not every call is submitted to the pool.
"""

from __future__ import annotations

import asyncio
import atexit
import collections
import concurrent.futures
import contextlib
import contextvars
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from kopf._intents.handler_pool import HandlerPool
from kopf._intents.settings import ExecutionSettings

TIME_SLICE = 0.02
"""Seconds for which a worker in the default pool takes jobs before it is submitted again."""

DETACHED_GRACE = 1.0
"""Seconds for which the exit of the process waits for the functions in detached threads, all together."""

_detached: set[threading.Thread] = set()
"""The detached threads whose functions have not returned yet."""


def call_limit(execution: ExecutionSettings) -> int | None:
    """How many calls the current executor gets at the same time, if it is limited."""
    return execution._max_workers if execution._limited is execution.executor else None


def _join_detached() -> None:
    # A thread that runs while the interpreter is finalised can crash the process in native code.
    deadline = time.monotonic() + DETACHED_GRACE
    with contextlib.suppress(KeyboardInterrupt):
        for thread in list(_detached):
            thread.join(max(0.0, deadline - time.monotonic()))


atexit.register(_join_detached)


class ExecutorPool:
    """Calls functions in executors; there is one per event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        super().__init__()
        self._loop = loop if loop is not None else asyncio.get_running_loop()
        self._done: collections.deque[ThreadJob] = collections.deque()
        # Locked from the wake-up of the loop until it delivers the jobs: a flag with test-and-set.
        self._wake_pending = threading.Lock()
        self._pending: dict[ThreadJob, asyncio.Task[Any] | None] = {}
        self._abandoned: set[asyncio.Task[Any]] = set()
        self._queue: _SharedQueue | None = None

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
        job = ThreadJob(self, fn, kwargs, self._loop.create_future())
        self._submit(job, executor, limit)
        self._pending[job] = asyncio.current_task()
        try:
            await job.future
        except asyncio.CancelledError:
            # Threads cannot be cancelled. Leaving one behind with its arguments is worse than waiting.
            while not job.finished and not job.abandoned:
                job.future = self._loop.create_future()
                with contextlib.suppress(asyncio.CancelledError):
                    await job.future
            raise
        finally:
            del self._pending[job]
        return job.take_result()

    async def call_detached(self, fn: Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
        """Call the function in a separate daemon thread, in a copy of the context.

        A cancellation does not wait until the function returns; the exit of the process waits for
        `DETACHED_GRACE` seconds.
        """
        job = ThreadJob(self, fn, kwargs, self._loop.create_future())

        def run() -> None:
            try:
                job.run()
            finally:
                _detached.discard(thread)

        thread = threading.Thread(target=run, name="kopf-detached", daemon=True)
        _detached.add(thread)
        try:
            thread.start()
        except BaseException:
            _detached.discard(thread)
            raise
        await job.future
        return job.take_result()

    def abandon(self, tasks: Collection[asyncio.Task[Any]]) -> None:
        """Cancel the calls in these tasks without waiting until their functions return: the operator ends."""
        for job, task in self._pending.items():
            if task is not None and task in tasks:
                self._abandoned.add(task)
                job.abandoned = True
                job.future.cancel()

    def has_abandoned(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether a call in the task was abandoned, so that its function may still run in a thread."""
        return task in self._abandoned

    def load(self) -> tuple[int, int, int | None]:
        """How many functions run, how many wait for a thread, and how many can run, if that is known.

        Functions in an executor of the user count as running.
        """
        waiting = self._queue.waiting if self._queue is not None else 0
        limit = self._queue.size if self._queue is not None else None
        return max(0, len(self._pending) - waiting), waiting, limit

    def _submit(self, job: ThreadJob, executor: concurrent.futures.Executor, limit: int | None) -> None:
        is_default = type(executor) is HandlerPool
        size = executor.size if isinstance(executor, HandlerPool) and is_default else limit
        if size is None:
            executor.submit(job.run).add_done_callback(job.drop_unless_called)
        else:
            if self._queue is None or self._queue.executor is not executor:
                # Executors of users get every call: they may count, prioritise, or share them.
                self._queue = _SharedQueue(executor, TIME_SLICE if is_default else 0)
            self._queue.put(job, size)

    def on_done(self, job: ThreadJob) -> None:
        """Queue a finished job, and wake the loop; this is the only method that is called in threads."""
        self._done.append(job)
        if self._wake_pending.acquire(blocking=False):
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nothing waits for results
                self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        # Released first: a job that is appended after this loop has looked wakes the event loop again.
        self._wake_pending.release()
        for _ in range(len(self._done)):
            job = self._done.popleft()
            if not job.future.done():
                job.future.set_result(None)


class _SharedQueue:
    """The jobs that wait for the threads of one executor.

    Submitting each job costs more than most jobs take. There are at most as many workers as threads.
    """

    def __init__(self, executor: concurrent.futures.Executor, time_slice: float) -> None:
        super().__init__()
        self.executor = executor
        self._time_slice = time_slice
        self._size = 0
        self._calls: collections.deque[ThreadJob] = collections.deque()
        self._workers = 0
        self._lock = threading.Lock()

    @property
    def waiting(self) -> int:
        """How many jobs wait for a thread."""
        return len(self._calls)

    @property
    def size(self) -> int:
        """How many jobs run at the same time."""
        return self._size

    def put(self, job: ThreadJob, size: int) -> None:
        """Add a job; `size` is how many of the jobs run at the same time."""
        with self._lock:
            self._size = size
            self._calls.append(job)
            if self._workers >= size:
                return
            self._workers += 1
        try:
            self._submit_worker()
        except BaseException:
            with self._lock:
                self._workers -= 1
                if job not in self._calls:
                    return  # another worker has taken it
                self._calls.remove(job)
            raise

    def _submit_worker(self) -> None:
        self.executor.submit(self._worker).add_done_callback(self._replace_dropped)

    def _replace_dropped(self, submitted: concurrent.futures.Future[None]) -> None:
        """Let no job wait for a worker that the executor has dropped."""
        if not submitted.cancelled() and submitted.exception() is None:
            return
        with self._lock:
            self._workers -= 1
            dropped = [] if self._workers else list(self._calls)
            if dropped:
                self._calls.clear()
        for job in dropped:
            job.drop_unless_called(submitted)

    def _worker(self) -> None:
        deadline = time.monotonic() + self._time_slice
        while True:
            with self._lock:
                if not self._calls or self._workers > self._size:
                    self._workers -= 1
                    return
                job = self._calls.popleft()
            job.run()
            if time.monotonic() >= deadline and self._calls:
                try:
                    self._submit_worker()
                    return
                except RuntimeError:
                    # It is shut down: the jobs in the queue are executed nevertheless, as executors do.
                    deadline = float("inf")


class ThreadJob:
    """One call of one function, and its result."""

    __slots__ = ("abandoned", "context", "error", "finished", "fn", "future", "kwargs", "pool", "result")

    def __init__(
        self,
        pool: ExecutorPool,
        fn: Callable[..., Any],
        kwargs: Mapping[str, Any],
        future: asyncio.Future[None],
    ) -> None:
        self.pool = pool
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
        self.pool.on_done(self)

    def drop_unless_called(self, submitted: concurrent.futures.Future[None]) -> None:
        """Fail if the executor has dropped the call, for example because it could not start its threads."""
        if self.finished:
            return
        if submitted.cancelled():
            self.error = concurrent.futures.CancelledError("The executor has cancelled the call.")
        else:
            self.error = submitted.exception() or RuntimeError("The executor has not called the function.")
        self.finished = True
        self.pool.on_done(self)

    def take_result(self) -> Any:
        """Return the result of the function, or raise its exception."""
        if self.error is not None:
            error, self.error = self.error, None
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame
        return self.result
