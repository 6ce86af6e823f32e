"""Virtual time of a test with several clusters: it never goes back for those that continue to run."""

import asyncio
import datetime
import threading

import kopf
import pytest
from kopf.testing import Cluster, KopfRunner, Operator

pytestmark = pytest.mark.kopf_embedded_only
HOUR = datetime.timedelta(hours=1)
CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}


def test_time_continues_for_the_operators_of_other_clusters():
    with Cluster() as other, Operator(other):
        with Cluster() as cluster:
            cluster.advance("1 day")
            cluster.freeze()
            before = cluster.now
        assert other.now >= before
        assert not other.clock.clock.frozen
        other.wait_until_idle()
    assert_real_time()


def test_time_stays_frozen_if_another_cluster_has_frozen_it():
    with Cluster() as other:
        other.freeze()
        before = other.now
        with Cluster() as cluster, Operator(cluster):
            cluster.advance("1 day")
        assert other.clock.clock.frozen
        assert other.now - before == 24 * HOUR
    assert_real_time()


def test_the_operators_of_other_clusters_are_awaited():
    started, gate = threading.Event(), threading.Event()

    def handlers():
        @kopf.on.create("configmaps")
        def slow(**_):
            started.set()
            gate.wait(60)

    with Cluster() as cluster, Cluster() as other, Operator(other, handlers):
        other.create(CONFIG)
        assert started.wait(60)
        try:
            with pytest.raises(TimeoutError, match=r"Busy: .*'slow' of default/one"):
                cluster.wait_until_idle(timeout=0.1)
            with pytest.raises(TimeoutError, match="'slow' of default/one"):
                cluster.advance(5, timeout=0.1)
        finally:
            gate.set()
        cluster.wait_until_idle()
    assert_real_time()


def test_the_timers_of_other_clusters_are_called_in_time():
    moments = []

    def handlers():
        @kopf.timer("configmaps", interval=60, initial_delay=60)
        def tick(**_):
            moments.append(other.now)

    with Cluster() as cluster, Cluster() as other, Operator(other, handlers):
        cluster.freeze()
        other.create(CONFIG)
        cluster.wait_until_idle()
        before = cluster.now
        cluster.advance("1h")
    assert [round((moment - before).total_seconds()) for moment in moments] == list(range(60, 3601, 60))
    assert_real_time()


def interrupt(*_, **__):
    raise KeyboardInterrupt


def test_an_interrupted_start_leaves_nothing():
    """Such as by the timeout of the test."""
    registry = kopf.OperatorRegistry()

    def handlers():
        @kopf.on.create("configmaps")
        def greet(**_): ...

    with Cluster() as cluster:
        operator = Operator(cluster, handlers, registry=registry)
        operator._started_or_failed.wait = interrupt
        with pytest.raises(KeyboardInterrupt):
            operator.start()
        assert registry._changing.get_all_handlers() == []
        operator._thread.join(60)
        assert not operator.running
    assert_time_is_returned()


def test_an_interrupted_stop_leaves_nothing_in_the_clock():
    with Cluster() as cluster:
        operator = Operator(cluster)
        operator.start()
        thread, join = operator._thread, operator._thread.join
        thread.join = interrupt
        with pytest.raises(KeyboardInterrupt):
            operator.stop()
        join(60)
    assert_time_is_returned()


def test_a_cancelled_start_leaves_nothing():
    calling = threading.Event()

    def handlers():
        @kopf.on.startup()
        async def connect(**_):
            calling.set()
            await asyncio.Event().wait()

    async def enter(operator):
        async with operator:
            raise AssertionError("The startup handler never returns.")

    async def main(operator):
        entering = asyncio.create_task(enter(operator))
        assert await asyncio.to_thread(calling.wait, 60)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        assert not operator.running

    with Cluster() as cluster:
        asyncio.run(main(Operator(cluster, handlers)))
    assert_time_is_returned()


def test_an_interrupted_exit_of_a_command_leaves_nothing_in_the_clock():
    with Cluster() as cluster:
        runner = KopfRunner(["run", "-A"], cluster=cluster, registry=kopf.OperatorRegistry())
        runner.__enter__()
        join = runner._thread.join
        runner._thread.join = interrupt
        with pytest.raises(KeyboardInterrupt):
            runner.__exit__(None, None, None)
        join(60)
    assert_time_is_returned()


def assert_time_is_returned():
    """The end of a later cluster returns to real time: there are no operators of others."""
    with Cluster() as later:
        later.advance("1 day")
    assert_real_time()


def assert_real_time():
    with Cluster() as cluster:
        assert abs(cluster.now - datetime.datetime.now(datetime.UTC)) < HOUR
