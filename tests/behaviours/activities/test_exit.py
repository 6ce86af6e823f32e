"""Handlers that run while the operator is stopped."""

import asyncio
import threading

import kopf
import pytest
from kopf.testing import Operator


@pytest.mark.parametrize("exit_timeout, duration, outcome", [(0.1, 600, "cancelled"), (60, 1, "finished")])
def test_running_coroutines_are_cancelled_after_the_exit_timeout(
    cluster, make, exit_timeout, duration, outcome
):
    started, outcomes = threading.Event(), []

    def handlers():
        @kopf.on.startup()
        def configure(settings, **_):
            settings.queueing.exit_timeout = exit_timeout

        @kopf.on.create("widgets")
        async def slow(**_):
            started.set()
            try:
                await asyncio.sleep(duration)
                outcomes.append("finished")
            except asyncio.CancelledError:
                outcomes.append("cancelled")
                raise

    with Operator(cluster, handlers):
        make()
        assert started.wait(60)
    assert outcomes == [outcome]
