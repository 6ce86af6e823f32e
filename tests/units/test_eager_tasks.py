"""Eagerly started coroutines behave as ordinary tasks, for their code and for tools that inspect tasks."""

import asyncio
import contextvars
import inspect
import sys

import pytest
from kopf._runtime.eager_tasks import start_task

var: contextvars.ContextVar[str] = contextvars.ContextVar("var", default="nothing")
EAGER = sys.version_info >= (3, 12)


def start(coroutine, context=None, name="it"):
    context = context if context is not None else contextvars.copy_context()
    return start_task(asyncio.get_running_loop(), coroutine, name=name, context=context)


@pytest.mark.skipif(not EAGER, reason="tasks cannot begin at once before Python 3.12")
def test_they_begin_at_once():
    async def main():
        done = []

        async def work():
            done.append(asyncio.current_task())

        task = start(work())
        assert done == [task] and task.done()

    asyncio.run(main())


def test_a_waiting_task_can_be_inspected():
    async def main():
        async def work():
            await asyncio.Event().wait()

        task = start(work(), name="Handler 'fn' of ns/name")
        await asyncio.sleep(0)
        assert task.get_name() == "Handler 'fn' of ns/name"
        assert [frame.f_code.co_name for frame in task.get_stack()] == ["work"]
        assert inspect.getcoroutinestate(task.get_coro()) == inspect.CORO_SUSPENDED
        assert task in asyncio.all_tasks()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_the_current_task_is_the_one_of_the_coroutine_and_then_that_of_the_caller_again():
    async def main():
        me, seen = asyncio.current_task(), []

        async def work():
            seen.append(asyncio.current_task())
            async with asyncio.timeout(10):
                await asyncio.sleep(0)
            seen.append(asyncio.current_task())

        task = start(work())
        assert asyncio.current_task() is me
        await task
        assert seen == [task, task]

    asyncio.run(main())


@pytest.mark.contract("engine 0.4")
def test_contexts_are_those_that_are_given():
    async def main():
        seen = []

        async def mark():
            seen.append(var.get())
            await asyncio.sleep(0)
            var.set("marked")

        shared = contextvars.copy_context()
        await start(mark(), shared)
        await start(mark(), shared)
        await start(mark())
        assert seen == ["nothing", "marked", "nothing"] and var.get() == "nothing"

    asyncio.run(main())


def test_the_task_factory_of_the_loop_is_honoured():
    async def main():
        made = []

        def factory(loop, coroutine, **kwargs):
            made.append(kwargs.get("context"))
            return asyncio.Task(coroutine, loop=loop, **kwargs)

        asyncio.get_running_loop().set_task_factory(factory)
        context = contextvars.copy_context()
        await start(asyncio.sleep(0), context)
        assert made == [context]

    asyncio.run(main())
