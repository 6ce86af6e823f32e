"""Stop flags of daemons, in threads and in event loops."""

import asyncio
import threading

import pytest
from kopf._objects.stoppers import DaemonStoppingReason, FlagSetter


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
