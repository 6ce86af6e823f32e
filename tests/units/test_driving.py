"""Coroutines in as few tasks as possible: what they may rely on, and what they must not notice."""

import asyncio
import contextvars
import gc
import weakref

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
        # At once, with no turn of the loop in between.
        assert len(runs.tasks) == 3 and len(set(runs.tasks)) == 1
        assert runs.waiting == {}
        await turns()
        runs.add("d", nothing)
        assert len(set(runs.tasks)) == 1

    asyncio.run(main())


def test_who_waits_keeps_the_task_and_the_others_go_on():
    async def main():
        runs, event = Runs(), asyncio.Event()
        for name, function in {"a": nothing, "b": event.wait, "c": nothing}.items():
            runs.add(name, function)
        await turns()
        first, second, third = runs.tasks
        assert first is second and third is not second
        assert runs.waiting == {"b": second} and not second.done()
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


@pytest.mark.parametrize("begun", [False, True])
def test_who_cancels_itself_is_told_where_it_waits_and_others_are_not(begun):
    async def main():
        runs, inner = Runs(), asyncio.get_running_loop().create_future()
        told, passed = [], []

        async def give_up():
            asyncio.current_task().cancel()
            try:
                await inner
            except asyncio.CancelledError:
                told.append(asyncio.current_task())
                raise

        async def give_up_too_late():
            asyncio.current_task().cancel()

        async def go_on():
            await asyncio.sleep(0)
            passed.append(True)

        if begun:
            runs.add("z", nothing)
            await turns()
        for name, function in {"a": give_up, "b": give_up_too_late, "c": go_on}.items():
            runs.add(name, function)
        await turns()
        assert told == [runs.waiting["a"]] and told[0].cancelled()
        assert inner.cancelled()  # as whatever a task waits for
        assert passed == [True]

    asyncio.run(main())


@pytest.mark.parametrize("begun", [False, True])
def test_who_is_cancelled_right_after_its_first_step_is_told(begun):
    async def main():
        runs, inner = Runs(), asyncio.get_running_loop().create_future()
        told = []

        async def wait():
            try:
                await inner
            except asyncio.CancelledError:
                told.append("cancelled")
                await asyncio.sleep(0)
                told.append("cleaned")

        if begun:
            runs.add("z", nothing)
            await turns()
        runs.add("a", wait)
        runs.waiting["a"].cancel()
        await turns()
        assert told == ["cancelled", "cleaned"] and inner.cancelled() and runs.waiting["a"].done()

    asyncio.run(main())


def test_what_is_ready_before_the_task_is_goes_on_with_its_value():
    async def main():
        runs, inner = Runs(), asyncio.get_running_loop().create_future()
        got = []

        async def wait():
            got.append(await inner)
            try:
                await broken
            except ValueError:
                got.append("failed")

        broken = asyncio.get_running_loop().create_future()
        runs.add("a", wait)
        inner.set_result("value")
        broken.set_exception(ValueError())
        await turns()
        assert got == ["value", "failed"]

    asyncio.run(main())


def test_the_task_of_whoever_called_is_the_current_one_again():
    async def main():
        runs, me = Runs(), asyncio.current_task()

        async def nest():
            runs.add("b", nothing)
            assert asyncio.current_task() is runs.tasks[0]

        runs.add("a", nest)
        assert asyncio.current_task() is me
        assert len(set(runs.tasks)) == 2 and me not in runs.tasks

    asyncio.run(main())


def test_nothing_is_left_behind():
    async def main():
        runs = Runs()
        runs.add("a", nothing)
        await turns()
        assert len(asyncio.all_tasks()) == 2
        left = runs.relay.close()
        await asyncio.wait(left)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert runs.relay.close() == []

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


@pytest.mark.parametrize("begun", [False, True])
def test_who_fails_after_waiting_is_gone_at_once(begun):
    class Kept:
        pass

    async def main():
        relay, told, left = Relay(asyncio.get_running_loop()), [], []
        asyncio.get_running_loop().set_exception_handler(lambda _, it: told.append(str(it["exception"])))

        async def fail():
            kept = Kept()
            left.append(weakref.ref(kept))
            await asyncio.sleep(0)
            raise ValueError("boo")

        if begun:
            relay.add(nothing(), contextvars.copy_context(), lambda _: None)
            await turns()
        relay.add(fail(), contextvars.copy_context(), lambda _: None)
        assert left[0]() is not None
        await turns()
        assert left[0]() is None and told == ["boo"]

    gc.disable()  # whoever needs it is not gone at once
    try:
        asyncio.run(main())
    finally:
        gc.enable()
