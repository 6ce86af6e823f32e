"""Section 3.1 and scenarios 9 and 10: the argument `api` of handlers and activities."""

import asyncio
import collections
import dataclasses
import gc
import os
import queue
import threading
import time

import kopf
import pytest
from kopf.testing import Operator

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
@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="open files are counted in /proc")
def test_3_10_10_an_operator_that_exits_leaves_nothing(make, cluster):
    def opened():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    def use(name):
        seen, ended = threading.Event(), threading.Event()

        async def follow(api):
            with pytest.raises(RuntimeError, match="its operator has ended"):
                async for _ in api.watch("configmaps"):
                    pass
            ended.set()

        def handlers():
            @kopf.on.create("widgets")
            async def made(api, memo, **_):
                memo.task = asyncio.create_task(follow(api))
                await api.find("configmaps", "x")
                seen.set()

        with Operator(cluster, handlers):
            make(name)
            assert seen.wait(60)
        assert ended.wait(60)
        return set(threading.enumerate())

    # The first one starts what the process keeps.
    threads, files = use("first"), opened()
    for name in ("second", "third"):
        left = {thread.name for thread in use(name) - threads}
        assert not left
    # The server closes its ends of the connections a moment later.
    deadline = time.monotonic() + 20
    while opened() > files and time.monotonic() < deadline:
        threading.Event().wait(0.05)
    assert opened() <= files


AFTER_THE_END = (
    HEAD
    + """
@kopf.on.create("widgets")
def give(api, memo, **_):
    memo.apis.put(api)
"""
)


@pytest.mark.kopf_embedded_only
def test_3_10_10_streams_and_waits_in_other_threads_end_with_the_operator(run, make):
    apis, errors, followed = queue.Queue(), queue.Queue(), threading.Event()
    running = run(source=AFTER_THE_END, share={"apis": apis})
    make()
    api = apis.get(timeout=60)

    def follow():
        for _ in api.watch("widgets"):
            followed.set()

    def wait():
        api.wait_for("configmaps", "never", lambda body: body is not None, timeout=None)

    def report(fn):
        try:
            fn()
        except Exception as error:
            errors.put(error)

    threads = [threading.Thread(target=report, args=[fn], daemon=True) for fn in (follow, wait)]
    for thread in threads:
        thread.start()
    assert followed.wait(60)
    running.stop()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    report(lambda: api.get("widgets", "one"))
    assert [type(errors.get(timeout=60)) for _ in range(3)] == [RuntimeError] * 3


LOGINS = (
    HEAD
    + """
@kopf.on.login()
def log_in(memo, **_):
    memo.calls.append(("login", 1))
    return memo.connect()

@kopf.on.create("widgets")
async def made(api, name, memo, **_):
    memo.calls.append(("made", name, await memo.verbs[name](api)))
"""
)
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}


@pytest.mark.kopf_embedded_only
def test_3_10_6_each_verb_continues_with_a_new_token_after_one_login(run, make, cluster):
    cluster.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "mine"}})

    def connect():
        path = f"/api/v1/namespaces/{cluster.namespace}/serviceaccounts/mine/token"
        token = cluster.call("POST", path, {"spec": {}})["status"]["token"]
        return dataclasses.replace(cluster.connection, token=token)

    verbs = {
        "discovery": lambda api: api.find("configmaps", "one"),
        "create": lambda api: api.create(CONFIG_MAP),
        "get": lambda api: api.get("configmaps", "one"),
        "list": lambda api: api.list("configmaps", fields={"metadata.name": "one"}),
        "patch": lambda api: api.patch("configmaps", "one", {"data": {"x": "1"}}),
        "update": lambda api: api.replace({**CONFIG_MAP, "data": {"x": "2"}}),
        "delete": lambda api: api.delete("configmaps", "one"),
    }
    running = run(source=LOGINS, share={"connect": connect, "verbs": verbs})
    for count, verb in enumerate(verbs, start=1):
        # The object, and the request that verifies whether the server itself rejects the credentials.
        rejected = {"discovery": [], "get": ["get", "get"]}.get(verb, [verb, "get"])
        for each, times in collections.Counter(rejected).items():
            cluster.inject("code", 401, verb=each, times=times)
        make(verb)
        running.until("made", count)
        assert running.of("made")[-1][0] == verb
        assert len(running.of("login")) == count
    assert cluster.find("configmaps", "one") is None
    running.stop()
