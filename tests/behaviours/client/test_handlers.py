"""Section 3.1 and scenarios 9 and 10: the argument `api` of handlers and activities."""

import threading

import pytest

HEAD = """
import asyncio, kopf, threading
"""

HANDLERS = (
    HEAD
    + """
@kopf.on.startup()
async def started(api, memo, **_):
    memo.calls.append(("started", type(api).__name__, (await api.server_version())["major"]))

@kopf.on.cleanup()
def cleaned(api, memo, **_):
    memo.calls.append(("cleaned", type(api).__name__, api.server_version()["major"]))

@kopf.on.create("widgets")
async def made(api, name, memo, **kwargs):
    await api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
    memo.calls.append(("made", type(api).__name__, "api" in kwargs))

@kopf.on.create("widgets")
def made_in_a_thread(api, name, namespace, memo, **_):
    body = api.wait_for("configmaps", name, kopf.client.exists, timeout=30)
    memo.calls.append(("thread", type(api).__name__, body.metadata.namespace == namespace))

@kopf.on.create("widgets")
def without(memo, **kwargs):
    memo.calls.append(("without", "api" in kwargs))

@kopf.on.create("widgets")
async def in_another_loop(api, name, memo, **_):
    async def read():
        return [await api.find("configmaps", "nothing") for _ in range(2)]
    def run():
        return asyncio.run(asyncio.wait_for(read(), 30))
    memo.calls.append(("loop", await asyncio.to_thread(run)))

@kopf.on.create("widgets")
async def waiting(name, memo, **_):
    body = await kopf.wait_for("configmaps", name, kopf.client.exists, timeout=30)
    memo.calls.append(("waiting", body.metadata.name))

@kopf.timer("widgets", interval=60)
async def timed(api, name, memo, **_):
    memo.calls.append(("timed", (await api.get("widgets", name)).metadata.name))
"""
)


def test_3_1_handlers_that_name_it_get_a_client_for_the_handled_object(run, make, cluster):
    running = run(source=HANDLERS)
    make()
    for handler in ("made", "thread", "without", "loop", "waiting", "timed"):
        running.until(handler)
    running.stop()
    assert running.of("started") == [("Api", "1")]
    assert running.of("made") == [("Api", False)]
    assert running.of("thread") == [("SyncApi", True)]
    assert running.of("without") == [False]
    assert running.of("loop") == [[None, None]]
    assert running.of("timed") == ["one"]
    assert running.of("cleaned") == [("SyncApi", "1")]
    assert cluster.get("configmaps", "one")["metadata"]["name"] == "one"


def test_3_1_an_index_of_the_same_name_takes_precedence(run, make):
    source = (
        HEAD
        + """
@kopf.index("widgets")
def api(name, **_):
    return {name: 1}

@kopf.on.create("widgets")
def made(api, memo, **_):
    memo.calls.append(("made", list(api)))
"""
    )
    running = run(source=source)
    make()
    running.until("made")
    assert running.of("made") == [["one"]]


def test_3_2_a_cluster_scoped_object_provides_no_namespace(run, cluster):
    source = (
        HEAD
        + """
@kopf.on.event("namespaces")
async def seen(api, name, memo, **_):
    try:
        await api.get("configmaps", "x")
    except ValueError as e:
        text = str(e)
    found = await api.find("configmaps", "x", namespace=name)
    memo.calls.append(("seen", text, found))
"""
    )
    running = run(source=source)
    running.until("seen")
    text, found = running.of("seen")[0]
    assert "namespace=..." in text and found is None


@pytest.mark.kopf_embedded_only
def test_3_10_9_many_calls_do_not_delay_the_progress(run, make, handled, cluster):
    source = (
        HEAD
        + """
@kopf.on.create("widgets")
async def slow(api, memo, **_):
    # Otherwise, a garbage collection in any later test would log the errors of the calls.
    calls = [api.get("configmaps", f"n{i}") for i in range(200)]
    memo.all_calls = asyncio.gather(*calls, return_exceptions=True)
    await asyncio.sleep(0)
    memo.calls.append(("slow", 1))

@kopf.on.create("widgets")
def other(**_):
    pass
"""
    )
    cluster.inject("latency", 1, verb="get", resource="configmaps")
    running = run(source=source)
    cluster.clear_requests()
    make()
    running.until("slow")
    handled()
    log = cluster.requests
    patched = next(i for i, it in enumerate(log) if it.method == "PATCH")
    # The first wave of requests takes a second; the patch did not wait for it.
    assert len([it for it in log[:patched] if "configmaps" in it.path]) < 100
    cluster.clear_faults()


@pytest.mark.kopf_embedded_only
def test_3_10_10_an_operator_that_exits_leaves_nothing(run, make, cluster):
    source = (
        HEAD
        + """
@kopf.on.event("widgets")
async def seen(api, memo, **_):
    async def follow():
        try:
            async for event in api.watch("configmaps"):
                pass
        except Exception as e:
            memo.calls.append(("ended", type(e).__name__))
    memo.task = asyncio.create_task(follow())
    await api.find("configmaps", "x")
    memo.calls.append(("seen", 1))
"""
    )
    before = set(threading.enumerate())
    running = run(source=source)
    make()
    running.until("seen")
    running.stop()
    left = [thread.name for thread in set(threading.enumerate()) - before if "asyncio" not in thread.name]
    assert not [name for name in left if "kopf-operator" in name]
