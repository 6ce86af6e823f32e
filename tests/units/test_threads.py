"""How synchronous functions share the threads of an executor."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest
from kopf._runtime import threads
from kopf._runtime.threads import Threads

LONG = 60.0


def submissions(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is submitted to the executor from now on."""
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
    monkeypatch.setattr(threads, "TURN", LONG)
    gate = threading.Event()

    def call(number: int) -> int:
        assert gate.wait(LONG)
        return number

    async def main(executor: ThreadPoolExecutor) -> None:
        calls = Threads()
        tasks = [asyncio.create_task(calls.call(executor, call, {"number": i})) for i in range(100)]
        await asyncio.sleep(0)  # all of them have begun
        gate.set()
        assert await asyncio.gather(*tasks) == list(range(100))

    with ThreadPoolExecutor(3) as executor:
        seen = submissions(executor, monkeypatch)
        run(main(executor))
    assert len(seen) == 3


def test_as_many_run_at_the_same_time_as_there_can_be_threads() -> None:
    barrier = threading.Barrier(4)

    async def main(executor: ThreadPoolExecutor) -> None:
        calls = Threads()
        await asyncio.gather(*(calls.call(executor, barrier.wait, {"timeout": LONG}) for _ in range(8)))

    with ThreadPoolExecutor(4) as executor:
        run(main(executor))


def test_one_thread_calls_in_order_and_lets_others_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "TURN", -1.0)
    gate, order = threading.Event(), list[Any]()

    def call(number: int) -> None:
        assert gate.wait(LONG)
        order.append(number)

    async def main(executor: ThreadPoolExecutor) -> None:
        calls = Threads()
        tasks = [asyncio.create_task(calls.call(executor, call, {"number": i})) for i in range(5)]
        await asyncio.sleep(0)
        executor.submit(order.append, "other")
        gate.set()
        await asyncio.gather(*tasks)

    with ThreadPoolExecutor(1) as executor:
        run(main(executor))
    assert order == [0, "other", 1, 2, 3, 4]


def test_an_executor_that_is_shut_down_refuses_and_another_one_takes_over() -> None:
    async def main() -> None:
        calls = Threads()
        with ThreadPoolExecutor(1) as executor:
            assert await calls.call(executor, int, {}) == 0
        with pytest.raises(RuntimeError, match="shutdown"):
            await calls.call(executor, int, {})
        with ThreadPoolExecutor(1) as executor:
            assert await calls.call(executor, int, {}) == 0

    run(main())


def test_what_was_put_before_the_shutdown_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "TURN", -1.0)
    gate = threading.Event()

    async def main() -> None:
        calls, executor = Threads(), ThreadPoolExecutor(1)
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
        calls = Threads()
        await asyncio.gather(*(calls.call(executor, int, {}) for _ in range(10)))

    with Counting(1) as executor:
        run(main(executor))
    assert executor.count == 10
