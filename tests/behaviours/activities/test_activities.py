"""Startup and cleanup handlers."""

import asyncio
import contextlib
import dataclasses
import pathlib

import kopf
import pytest
from kopf.testing import Operator

FILE = pathlib.Path(__file__).with_name("handlers.py")


@pytest.mark.contract("api 10.1")
def test_startup_is_before_everything_and_cleanup_after(run, make, cluster):
    running = run()
    assert running.of("begin") == [None]
    make()
    cluster.wait_for("widgets", "one", {"metadata": {"finalizers": ["example.com/own-finalizer"]}})
    cluster.delete("widgets", "one")
    cluster.wait_until_gone("widgets", "one")
    assert (running.of("deleted"), running.of("end")) == ([None], [])
    running.stop()
    assert running.of("end") == [None]


@pytest.mark.contract("engine 7.9")
def test_a_failed_startup_is_the_end(cluster):
    calls = []
    memo = kopf.Memo(calls=calls, fail=True)
    with pytest.raises(Exception, match="One or more handlers failed"), Operator(cluster, FILE, memo=memo):
        pytest.fail("It must not start.")
    assert calls[0] == ("begin", None)


DECLARED_AT_THE_START = """
import kopf

@kopf.on.startup()
def declare(**_):
    @kopf.on.create("widgets", id="created")
    def created(memo, **_):
        memo.calls.append(("created", None))

    @kopf.index("widgets", id="names")
    def names(name, **_):
        return {name: name}
"""


def test_startup_handlers_can_declare_handlers(run, make, handled, caplog):
    running = run(source=DECLARED_AT_THE_START)
    make()
    handled()
    assert running.of("created") == [None]
    assert "after the start" not in caplog.text


DECLARED_LATER = """
import kopf

@kopf.on.create("widgets")
def declare(memo, **_):
    @kopf.on.create("widgets", id="late")
    def late(**_):
        memo.calls.append(("late", None))

    @kopf.on.cleanup(id="end")
    def end(**_):
        memo.calls.append(("end", None))
"""


def test_later_declarations_are_warnings(run, make, handled, caplog):
    running = run(source=DECLARED_LATER)
    make()
    handled()
    running.stop()
    warnings = [record.getMessage() for record in caplog.records if "after the start" in record.getMessage()]
    assert warnings == [
        "Handler 'late' is declared after the start of the operator, which does not call it. Declare it when"
        " its file is loaded, or in a startup handler."
    ]
    # Activities are read when they begin.
    assert (running.of("late"), running.of("end")) == ([], [None])


def test_startup_handlers_can_fill_the_vault(cluster, make):
    vault, read = {}, []
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_):
        raise kopf.PermanentError("It is not called.")

    async def main():
        stop = asyncio.Event()

        @kopf.on.startup(registry=registry, id="1-fill")
        async def fill(**_):
            vault["given"] = cluster.connection

        @kopf.on.startup(registry=registry, id="2-read")
        async def look(api, **_):
            read.append((await api.get("namespaces", cluster.namespace)).metadata.name)

        @kopf.on.create("widgets", registry=registry)
        async def created(name, **_):
            read.append(name)
            stop.set()

        operator = kopf.operator(
            registry=registry, vault=vault, clusterwide=True, standalone=True, stop_flag=stop
        )
        await asyncio.wait_for(operator, 60)

    make()
    asyncio.run(main())
    assert read == [cluster.namespace, "one"]


@pytest.mark.kopf_embedded_only
def test_an_authority_is_ignored_without_verification(cluster, make):
    # Client libraries return the authority of the service account also if their verification is switched off.
    authority, _ = kopf.WebhookServer.build_certificate(["another.example.com"])
    calls = []

    def handlers():
        @kopf.on.login()
        def log_in(**_):
            return dataclasses.replace(cluster.connection, ca_data=authority, ca_path=None, insecure=True)

        @kopf.on.create("widgets")
        def created(name, **_):
            calls.append(name)

    with Operator(cluster, handlers) as operator:
        make()
        operator.wait_until_idle()
    assert calls == ["one"]


def test_a_cancellation_interrupts_the_cleanup(cluster):
    registry = kopf.OperatorRegistry()
    begun = asyncio.Event()

    @kopf.on.cleanup(registry=registry)
    async def end(**_):
        begun.set()
        raise kopf.TemporaryError("Not yet.", delay=3600)

    async def run_it():
        ready, stop = asyncio.Event(), asyncio.Event()
        flags = {"ready_flag": ready, "stop_flag": stop}
        options = {"standalone": True, "clusterwide": True, "vault": {"given": cluster.connection}}
        operator = asyncio.create_task(kopf.operator(registry=registry, **flags, **options))
        await asyncio.wait_for(ready.wait(), 30)
        stop.set()
        await asyncio.wait_for(begun.wait(), 30)
        operator.cancel()
        _, pending = await asyncio.wait([operator], timeout=10)
        assert not pending
        assert operator.cancelled()

    asyncio.run(run_it())


def test_a_stopped_event_loop_leaves_no_tasks_of_a_stopping_operator(cluster):
    registry = kopf.OperatorRegistry()
    ended = []

    async def stop_when_ready(ready, stop):
        await ready.wait()
        stop.set()

    with contextlib.closing(asyncio.new_event_loop()) as loop:

        @kopf.on.cleanup(registry=registry)
        async def end(**_):
            loop.call_soon(loop.stop)
            await asyncio.sleep(0.1)
            ended.append(True)

        flags = {"ready_flag": asyncio.Event(), "stop_flag": asyncio.Event()}
        stopping = loop.create_task(stop_when_ready(*flags.values()))
        options = {"standalone": True, "clusterwide": True, "vault": {"given": cluster.connection}}
        with pytest.raises(RuntimeError, match="Event loop stopped"):
            kopf.run(loop=loop, registry=registry, **flags, **options)
        assert (ended, stopping.done(), asyncio.all_tasks(loop)) == ([True], True, set())
