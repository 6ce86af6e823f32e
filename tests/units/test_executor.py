"""Synchronous functions share the threads of an executor."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from concurrent.futures.thread import BrokenThreadPool
from typing import Any

import pytest
from kopf._intents.handler_pool import HandlerPool
from kopf._intents.settings import ExecutionSettings
from kopf._runtime import executor as executor_module
from kopf._runtime.executor import ExecutorPool, ThreadJob, call_limit

LONG = 60.0


def submissions(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The functions submitted to the executor from now on."""
    seen: list[Any] = []
    submit = executor.submit

    def noting(fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        seen.append(fn)
        return submit(fn, *args, **kwargs)

    monkeypatch.setattr(executor, "submit", noting)
    return seen


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, LONG))


def test_many_calls_take_turns_of_few_submissions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_module, "TIME_SLICE", LONG)
    gate = threading.Event()

    def call(number: int) -> int:
        assert gate.wait(LONG)
        return number

    async def main(executor: HandlerPool) -> None:
        calls = ExecutorPool()
        tasks = [asyncio.create_task(calls.call(executor, call, {"number": i})) for i in range(100)]
        await asyncio.sleep(0)  # all of them have begun
        gate.set()
        assert await asyncio.gather(*tasks) == list(range(100))

    with HandlerPool(3) as executor:
        seen = submissions(executor, monkeypatch)
        run(main(executor))
    assert len(seen) == 3


def test_as_many_run_at_the_same_time_as_there_can_be_threads() -> None:
    barrier = threading.Barrier(4)

    async def main(executor: HandlerPool) -> None:
        calls = ExecutorPool()
        await asyncio.gather(*(calls.call(executor, barrier.wait, {"timeout": LONG}) for _ in range(8)))

    with HandlerPool(4) as executor:
        run(main(executor))


def test_one_thread_calls_in_order_and_lets_others_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_module, "TIME_SLICE", -1.0)
    gate, order = threading.Event(), list[Any]()

    def call(number: int) -> None:
        assert gate.wait(LONG)
        order.append(number)

    async def main(executor: HandlerPool) -> None:
        calls = ExecutorPool()
        tasks = [asyncio.create_task(calls.call(executor, call, {"number": i})) for i in range(5)]
        await asyncio.sleep(0)
        executor.submit(order.append, "other")
        gate.set()
        await asyncio.gather(*tasks)

    with HandlerPool(1) as executor:
        run(main(executor))
    assert order == [0, "other", 1, 2, 3, 4]


def test_an_executor_that_is_shut_down_is_replaced() -> None:
    async def main() -> None:
        calls = ExecutorPool()
        with HandlerPool(1) as executor:
            assert await calls.call(executor, int, {}) == 0
        with pytest.raises(RuntimeError, match="shutdown"):
            await calls.call(executor, int, {})
        with HandlerPool(1) as executor:
            assert await calls.call(executor, int, {}) == 0

    run(main())


def test_what_was_put_before_the_shutdown_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_module, "TIME_SLICE", -1.0)
    gate = threading.Event()

    async def main() -> None:
        calls, executor = ExecutorPool(), HandlerPool(1)
        tasks = [asyncio.create_task(calls.call(executor, gate.wait, {"timeout": LONG})) for _ in range(5)]
        await asyncio.sleep(0)
        executor.shutdown(wait=False)
        gate.set()
        assert await asyncio.gather(*tasks) == [True] * 5

    run(main())


def test_executors_of_others_get_every_call() -> None:
    class Counting(ThreadPoolExecutor):
        count = 0

        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            self.count += 1
            return super().submit(fn, *args, **kwargs)

    async def main(executor: Counting) -> None:
        calls = ExecutorPool()
        await asyncio.gather(*(calls.call(executor, int, {}) for _ in range(10)))

    with Counting(1) as executor:
        run(main(executor))
    assert executor.count == 10


def test_a_call_that_returns_while_another_one_is_returning_is_collected() -> None:
    async def main() -> None:
        calls = ExecutorPool()
        first, second = (ThreadJob(calls, int, {}, calls._loop.create_future()) for _ in range(2))

        class Preempted(collections.deque[Any]):
            """The thread is preempted right after its call is in the queue, and another thread returns."""

            def append(self, call: Any) -> None:
                super().append(call)
                if call is first:
                    calls.on_done(second)

        calls._done = Preempted()
        calls.on_done(first)
        await asyncio.gather(first.future, second.future)

    run(main())


@pytest.mark.timeout(120)
def test_no_call_is_lost_when_threads_are_preempted_at_any_point() -> None:
    async def main(executor: HandlerPool) -> None:
        calls = ExecutorPool()
        for _ in range(1000):
            await asyncio.gather(*(calls.call(executor, int, {}) for _ in range(8)))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with HandlerPool(8) as executor:
            run(main(executor))
    finally:
        sys.setswitchinterval(interval)


def test_errors_of_functions_leave_nothing_to_the_garbage_collector() -> None:
    class Kept:
        pass

    left: list[Any] = []

    def fail() -> None:
        kept = Kept()
        left.append(weakref.ref(kept))
        raise ValueError("boo")

    async def main(executor: HandlerPool) -> None:
        with contextlib.suppress(ValueError):
            await ExecutorPool().call(executor, fail, {})
        # The thread lets go its frames a moment after it has woken the loop.
        executor.shutdown()
        assert left[0]() is None

    gc.disable()
    try:
        run(main(HandlerPool(1)))
    finally:
        gc.enable()


def test_the_executors_of_users_run_as_many_calls_as_they_are_limited_to() -> None:
    settings, running, most, lock = ExecutionSettings(), 0, 0, threading.Lock()
    barrier = threading.Barrier(2)
    settings.executor = ThreadPoolExecutor(8)
    settings.max_workers = 2

    def call() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        barrier.wait(LONG)
        with lock:
            running -= 1

    async def main() -> None:
        calls = ExecutorPool()
        limit = call_limit(settings)
        await asyncio.gather(*(calls.call(settings.executor, call, {}, limit) for _ in range(8)))

    with settings.executor:
        run(main())
    assert most == 2


def test_the_default_pool_is_of_the_size_that_is_set() -> None:
    settings = ExecutionSettings()
    assert isinstance(settings.executor, HandlerPool) and call_limit(settings) is None
    settings.max_workers = 50
    assert isinstance(settings.executor, HandlerPool) and settings.executor.size == 50
    settings.executor = ThreadPoolExecutor(8)
    assert call_limit(settings) is None


def test_calls_in_abandoned_tasks_do_not_wait_for_their_threads() -> None:
    started, release = threading.Event(), threading.Event()

    def call() -> None:
        started.set()
        assert release.wait(LONG)

    async def main(executor: HandlerPool) -> None:
        calls = ExecutorPool()
        task = asyncio.create_task(calls.call(executor, call, {}))
        await asyncio.to_thread(started.wait, LONG)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        calls.abandon([task])
        with pytest.raises(asyncio.CancelledError):
            await task
        release.set()

    with HandlerPool(1) as executor:
        run(main(executor))


def test_detached_calls_return_their_results_and_errors() -> None:
    variable = contextvars.ContextVar("variable", default="unset")

    def call(text: str) -> tuple[str, str, bool]:
        return text, variable.get(), threading.current_thread().daemon

    def fail() -> None:
        raise KeyError("x")

    async def main() -> None:
        calls = ExecutorPool()
        variable.set("set")
        assert await calls.call_detached(call, {"text": "a"}) == ("a", "set", True)
        with pytest.raises(KeyError):
            await calls.call_detached(fail, {})

    run(main())


def test_a_cancellation_does_not_wait_for_detached_calls() -> None:
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    def call() -> None:
        started.set()
        assert release.wait(LONG)
        ended.set()

    async def main() -> None:
        task = asyncio.create_task(ExecutorPool().call_detached(call, {}))
        await asyncio.to_thread(started.wait, LONG)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not release.is_set()

    run(main())
    # Its loop is closed.
    release.set()
    assert ended.wait(LONG)


_EXIT = """
import asyncio, sys, threading, time
from kopf._runtime import executor

executor.DETACHED_GRACE = float(sys.argv[1])

def returns():
    while threading.main_thread().is_alive():  # until the interpreter ends
        time.sleep(0.001)
    for _ in range(100):
        time.sleep(0.001)
    print("returned", flush=True)

def hangs():
    threading.Event().wait()

async def main():
    task = asyncio.create_task(executor.ExecutorPool().call_detached(globals()[sys.argv[2]], {}))
    await asyncio.sleep(0)
    task.cancel()

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("function", "grace", "output"), [("returns", LONG, "returned\n"), ("hangs", 0.01, "")]
)
def test_the_exit_of_the_process_waits_briefly_for_detached_calls(
    function: str, grace: float, output: str
) -> None:
    command = [sys.executable, "-c", _EXIT, str(grace), function]
    process = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
    assert (process.returncode, process.stdout, process.stderr) == (0, output, "")


@pytest.mark.parametrize("limit", [None, 1])
def test_calls_that_an_executor_drops_are_errors(limit: int | None) -> None:
    def fail() -> None:
        raise OSError("no connection")

    async def main(executor: Executor) -> None:
        calls = [ExecutorPool().call(executor, print, {}, limit) for _ in range(2)]
        pool = ExecutorPool()
        calls += [pool.call(executor, print, {}, limit) for _ in range(2)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results] == [BrokenThreadPool] * 4

    with ThreadPoolExecutor(1, initializer=fail) as executor:
        run(main(executor))


@pytest.mark.parametrize("limit", [None, 2])
def test_calls_that_an_executor_cancels_are_errors(limit: int | None) -> None:
    started, proceed = threading.Event(), threading.Event()

    def work() -> int:
        started.set()
        proceed.wait(LONG)
        return 1

    async def main(executor: ThreadPoolExecutor) -> None:
        pool = ExecutorPool()
        calls = [asyncio.ensure_future(pool.call(executor, work, {}, limit)) for _ in range(3)]
        await asyncio.sleep(0)
        assert started.wait(LONG)
        executor.shutdown(wait=False, cancel_futures=True)
        proceed.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
        if limit is None:
            assert results[0] == 1
            assert [type(result) for result in results[1:]] == [CancelledError] * 2
        else:
            assert results == [1, 1, 1], "the other worker continues"

    run(main(ThreadPoolExecutor(1)))
