"""Stop flags of daemons, in threads and in event loops."""

import asyncio
import threading

import pytest
from kopf._objects.stoppers import DaemonStoppingReason, FlagSetter

pytestmark = pytest.mark.contract("api 3.8")


@pytest.mark.contract("engine 9.3", "api 3.8")
def test_stoppers_wake_threads_and_loops():
    setter = FlagSetter()

    async def main():
        assert repr(setter.async_waiter) == "<AsyncFlagWaiter: False, reason=None>"
        assert not await setter.async_waiter.wait(0.001)
        threading.Timer(0.01, setter.set, [DaemonStoppingReason.DONE]).start()
        assert await setter.async_waiter.wait() is setter.async_waiter
        with pytest.raises(NotImplementedError, match="should not be awaited directly"):
            await setter.async_waiter

    asyncio.run(main())
    setter.set(DaemonStoppingReason.OPERATOR_EXITING)
    assert setter.sync_waiter.wait(0) is setter.sync_waiter
    assert setter.sync_waiter.reason == DaemonStoppingReason.DONE | DaemonStoppingReason.OPERATOR_EXITING
    assert setter.is_set(DaemonStoppingReason.DONE)


def test_daemons_that_ignore_the_raised_flag_can_be_cancelled():
    setter = FlagSetter()
    turns = []

    async def daemon():
        while len(turns) < 10_000:  # a blocked event loop would never end the test
            turns.append(await setter.async_waiter.wait(10))

    async def main():
        setter.set(DaemonStoppingReason.RESOURCE_DELETED)
        task = asyncio.create_task(daemon())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task

    assert asyncio.run(main()).cancelled()
    assert len(turns) < 10


def test_descriptions_have_the_names_of_the_reasons():
    setter = FlagSetter()
    setter.set(DaemonStoppingReason.DONE)
    assert repr(setter.sync_waiter) == "<SyncFlagWaiter: True, reason=DaemonStoppingReason.DONE>"
