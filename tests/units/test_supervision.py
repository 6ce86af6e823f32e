"""Supervision of the root tasks."""

import asyncio

import kopf
import pytest


def test_tasks_that_do_not_hang_are_not_stopped(caplog):
    caplog.set_level("DEBUG")

    async def main():
        tasks = [asyncio.create_task(asyncio.sleep(0)), asyncio.create_task(asyncio.sleep(100))]
        await kopf.run_tasks(tasks)

    asyncio.run(main())
    messages = [message for message in caplog.messages if "tasks" in message]
    assert messages == [
        "Root tasks are stopped: finishing normally; tasks left: set()",
        "Hung tasks stopping is skipped: no tasks given.",
    ]


def test_errors_of_remaining_tasks_are_raised():
    async def fail():
        await asyncio.sleep(0.01)
        raise ValueError("It is not flushed.")

    async def main():
        remaining = asyncio.create_task(fail())
        await kopf.run_tasks([asyncio.create_task(asyncio.sleep(0))])
        assert remaining.done()

    with pytest.raises(ValueError, match="not flushed"):
        asyncio.run(main())
