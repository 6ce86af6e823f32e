"""Supervision of the root tasks."""

import asyncio
import dataclasses

import kopf
import pytest
from kopf._runtime.supervision import supervise


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


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    code: int


def test_errors_whose_attributes_cannot_be_set_are_logged_and_raised(caplog):
    async def fail():
        raise Frozen(5)

    with pytest.raises(Frozen):
        asyncio.run(supervise("webhook server", fail(), finishable=False))
    assert caplog.messages == ["Webhook server has failed: 5"]
