"""Coroutines in as few tasks as possible: what they may rely on, and what they must not notice."""

import asyncio
import contextvars

import pytest
from kopf._runtime.driving import Relay

var: contextvars.ContextVar[str] = contextvars.ContextVar("var", default="nothing")


class Runs:
    def __init__(self):
        self.relay = Relay(asyncio.get_running_loop())
        self.tasks = []
        self.waiting = {}

    def add(self, name, function):
        async def run():
            self.tasks.append(asyncio.current_task())
            await function()

        self.relay.add(run(), contextvars.copy_context(), lambda task: self.waiting.__setitem__(name, task))


async def turns(count=10):
    for _ in range(count):
        await asyncio.sleep(0)


async def nothing():
    pass


def test_those_that_do_not_wait_share_a_task():
    async def main():
        runs = Runs()
        for name in "abc":
            runs.add(name, nothing)
        await turns()
        assert len(runs.tasks) == 3 and len(set(runs.tasks)) == 1
        assert runs.waiting == {}

    asyncio.run(main())


def test_who_waits_keeps_the_task_and_the_others_go_on():
    async def main():
        runs, event = Runs(), asyncio.Event()
        for name, function in {"a": nothing, "b": event.wait, "c": nothing}.items():
            runs.add(name, function)
        await turns()
        first, second, third = runs.tasks
        assert first is second and third is not second
        assert runs.waiting == {"b": second} and not second.done() and third.done()
        event.set()
        await turns()
        assert second.done()

    asyncio.run(main())


def test_cancellation_reaches_only_who_waits():
    async def main():
        runs = Runs()
        cancelled = []

        async def wait():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(asyncio.current_task())
                await asyncio.sleep(0)  # it may wait even then

        runs.add("a", wait)
        runs.add("b", nothing)
        await turns()
        runs.waiting["a"].cancel()
        await turns()
        assert cancelled == [runs.tasks[0]] and runs.tasks[0].done()
        assert len(runs.tasks) == 2

    asyncio.run(main())


def test_timeouts_work_from_the_first_step():
    async def main():
        runs = Runs()
        ended = []

        async def impatient():
            try:
                async with asyncio.timeout(0):
                    await asyncio.Event().wait()
            except TimeoutError:
                ended.append(True)

        runs.add("a", impatient)
        await turns(20)
        assert ended == [True]

    asyncio.run(main())


def test_contexts_are_apart_and_are_kept_while_waiting():
    async def main():
        runs = Runs()
        seen = []

        async def mark():
            seen.append(var.get())
            var.set("marked")
            await asyncio.sleep(0)
            seen.append(var.get())

        runs.add("a", mark)
        runs.add("b", mark)
        await turns()
        assert sorted(seen) == ["marked", "marked", "nothing", "nothing"]
        assert var.get() == "nothing"

    asyncio.run(main())


@pytest.mark.parametrize("waits", [False, True])
def test_the_end_of_one_is_not_the_end_of_others(waits):
    async def main():
        runs = Runs()

        async def fail():
            if waits:
                await asyncio.sleep(0)
            raise asyncio.CancelledError

        runs.add("a", fail)
        runs.add("b", nothing)
        await turns()
        assert len(runs.tasks) == 2
        runs.add("c", nothing)
        await turns()
        assert len(runs.tasks) == 3

    asyncio.run(main())
