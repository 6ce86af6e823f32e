"""Calls create no reference cycles: memory would grow until the garbage collector runs, and each run would
have to visit the objects of thousands of calls.
"""

import asyncio
import gc
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

import kopf
import pytest
from kopf.testing import Operator

pytestmark = pytest.mark.kopf_embedded_only
OBJECTS = 20
CONFIGMAPS = ("v1", "configmaps")


async def waiting(patch: Any, **_: Any) -> None:
    await asyncio.sleep(0)
    patch.metadata.labels["seen"] = "yes"


async def quick(patch: Any, **_: Any) -> None:
    patch.metadata.labels["seen"] = "yes"


def in_thread(patch: Any, **_: Any) -> None:
    patch.metadata.labels["seen"] = "yes"


async def failing(patch: Any, retry: int, **_: Any) -> None:
    await asyncio.sleep(0)
    if not retry:
        raise kopf.TemporaryError("not yet", delay=0)
    patch.metadata.labels["seen"] = "yes"


def failing_in_thread(patch: Any, retry: int, **_: Any) -> None:
    if not retry:
        raise kopf.TemporaryError("not yet", delay=0)
    patch.metadata.labels["seen"] = "yes"


async def curious(
    body: Any, spec: Any, status: Any, logger: Any, memo: Any, patch: Any, **kwargs: Any
) -> None:
    memo.known = [str(body), dict(spec), dict(status), list(kwargs)]
    await asyncio.sleep(0)
    logger.info("It is known.")
    patch.metadata.labels["seen"] = "yes"


FUNCTIONS = [waiting, quick, in_thread, failing, failing_in_thread, curious]
LAST = "kopf.zalando.org/last-handled-configuration"
DECORATORS = {
    "on.create": kopf.on.create,
    "on.event": kopf.on.event,
    "timer": kopf.timer,
    "daemon": kopf.daemon,
}


@pytest.fixture()
def operator(kopf_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Runs an operator as in a cluster: without waiting until it is idle."""
    monkeypatch.setenv("KUBECONFIG", str(kopf_cluster.kubeconfig))
    registry, ready, stop = kopf.OperatorRegistry(), threading.Event(), threading.Event()

    def run() -> None:
        working = kopf.operator(
            registry=registry, clusterwide=True, standalone=True, ready_flag=ready, stop_flag=stop
        )
        asyncio.run(working)

    thread = threading.Thread(target=run)

    def start() -> None:
        thread.start()
        ready.wait(30)

    start.registry = registry  # type: ignore[attr-defined]
    yield start
    gc.enable()
    stop.set()
    if thread.ident is not None:
        thread.join()


def is_known(body: Any) -> bool:
    return body is not None and LAST in body["metadata"].get("annotations", {})


def left_behind() -> Counter[str]:
    """What of ours only the garbage collector knows, by names of classes."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    found = [type(one) for one in gc.garbage]
    gc.garbage.clear()
    return Counter(one.__qualname__ for one in found if one.__module__.startswith("kopf._runtime"))


# Handlers of events are not retried.
RETRIED = (failing, failing_in_thread)
CASES = [(k, fn) for k in DECORATORS for fn in FUNCTIONS if k != "on.event" or fn not in RETRIED]


@pytest.mark.parametrize(("kind", "fn"), CASES)
def test_calls_leave_nothing_to_the_garbage_collector(kopf_cluster, operator, kind, fn):
    options = {"interval": 3600} if kind == "timer" else {}
    DECORATORS[kind](*CONFIGMAPS, registry=operator.registry, **options)(fn)
    operator()
    gc.collect()
    gc.disable()
    for number in range(OBJECTS):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"it-{number}"}}
        kopf_cluster.create(body)
    for number in range(OBJECTS):
        kopf_cluster.wait_for("configmaps", f"it-{number}", {"metadata": {"labels": {"seen": "yes"}}})
        kopf_cluster.delete("configmaps", f"it-{number}")
    for number in range(OBJECTS):
        kopf_cluster.wait_until_gone("configmaps", f"it-{number}")
    assert not left_behind()


def test_subhandlers_keep_nothing_of_objects_that_are_gone(kopf_cluster, operator):
    bodies: list[weakref.ref[Any]] = []

    @kopf.on.create(*CONFIGMAPS, registry=operator.registry)
    async def parent(body: Any, **_: Any) -> None:
        bodies.append(weakref.ref(body))

        @kopf.subhandler()
        def child(patch: Any, **_: Any) -> None:
            patch.metadata.labels["seen"] = body["metadata"]["name"]

    operator()
    for number in range(OBJECTS):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"it-{number}"}}
        kopf_cluster.create(body)
    for number in range(OBJECTS):
        kopf_cluster.wait_for("configmaps", f"it-{number}", is_known)
        kopf_cluster.delete("configmaps", f"it-{number}")
    for number in range(OBJECTS):
        kopf_cluster.wait_until_gone("configmaps", f"it-{number}")
    # The last of them is let go after the watch event of its deletion.
    until = time.monotonic() + 30
    while any(body() is not None for body in bodies) and time.monotonic() < until:
        gc.collect()
    assert len(bodies) >= OBJECTS and all(body() is None for body in bodies)


def test_neither_do_updates_with_all_that_belongs_to_them(kopf_cluster, operator):
    registry = operator.registry

    @kopf.index(*CONFIGMAPS, registry=registry, id="known")
    async def known(name: str, body: Any, **_: Any) -> Any:
        await asyncio.sleep(0)
        return {name: body.get("data")}

    @kopf.on.update(*CONFIGMAPS, registry=registry, when=lambda body, **_: "data" in body)
    async def changed(old: Any, new: Any, diff: Any, known: Any, patch: Any, **_: Any) -> None:
        @kopf.subhandler()
        async def inner(spec: Any, **_: Any) -> dict[str, Any]:
            await asyncio.sleep(0)
            return {"spec": dict(spec)}

        assert list(known) and old != new and diff
        patch.metadata.labels["seen"] = new["data"]["revision"]

    operator()
    for number in range(OBJECTS):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"it-{number}"}, "data": {}}
        kopf_cluster.create({**body, "data": {"revision": "none"}})
        kopf_cluster.wait_for("configmaps", f"it-{number}", is_known)
    gc.collect()
    gc.disable()
    for revision in ("one", "two"):
        for number in range(OBJECTS):
            kopf_cluster.patch("configmaps", f"it-{number}", {"data": {"revision": revision}})
        for number in range(OBJECTS):
            kopf_cluster.wait_for("configmaps", f"it-{number}", {"metadata": {"labels": {"seen": revision}}})
    assert not left_behind()


def test_functions_of_declarations_keep_no_memos_of_objects_without_handlers(kopf_cluster):
    copies: weakref.WeakSet[Any] = weakref.WeakSet()
    seen: dict[str, set[str]] = {"key": set(), "map": set(), "when": set()}

    class Copied:
        def __copy__(self) -> Any:
            copied = Copied()
            copies.add(copied)
            return copied

    def function(kind: str) -> Any:
        return lambda name, memo, **_: seen[kind].add(name)

    def declare() -> None:
        kopf.cache(*CONFIGMAPS, by={"key": function("key")})
        watched = kopf.watch("configmaps", map=function("map"))

        @kopf.on.reconcile(*CONFIGMAPS, when=function("when"))
        @kopf.on.reconcile("v1", "secrets", watches=[watched])
        def sync(**_: Any) -> None:
            pass

    names = {f"it-{number}" for number in range(OBJECTS)}
    with Operator(kopf_cluster, declare, memo=Copied()) as operator:
        for name in names:
            kopf_cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
        operator.wait_until_idle()
        assert [names - of for of in seen.values()] == [set()] * len(seen) and names
        for name in names:
            kopf_cluster.delete("configmaps", name)
        operator.wait_until_idle()
        gc.collect()
        assert not copies
