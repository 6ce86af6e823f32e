"""Supervision of the root tasks."""

import asyncio

import kopf


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
