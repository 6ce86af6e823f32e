"""The operator of `soak.py`: handlers of all kinds, some of which fail at times. It answers each
line of its input with a line of JSON about its state.
"""

import asyncio
import concurrent.futures
import gc
import json
import random
import sys
import threading
import time
import weakref
from collections import Counter
from typing import Any

import kopf

KIND = "soaks.example.com"
CHANCE = random.Random(1)
THREADS = 100

daemons: Counter[str] = Counter()
memos: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
seen: dict[str, dict[str, Any]] = {}
calls: Counter[str] = Counter()
index: Any = None
lock = threading.Lock()
maps = kopf.cache("configmaps", id="maps", by={"value": "data.value"})


def note(handler: str, name: str, spec: Any) -> None:
    with lock:
        calls[handler] += 1
        seen.setdefault(name, {})[handler] = spec.get("value")


def stumble(odds: float) -> None:
    match CHANCE.random() / odds:
        case luck if luck < 0.5:
            raise kopf.TemporaryError("not now", delay=0.3)
        case luck if luck < 1:
            raise RuntimeError("an unexpected error")


def fill(executor: concurrent.futures.Executor) -> None:
    """Let the pool have all its threads: it makes them as they are needed at the same time, and keeps them.
    Their number would follow the busiest moment so far, and look like a leak.
    """
    everybody = threading.Barrier(THREADS)
    for _ in range(THREADS):
        executor.submit(everybody.wait, 30)


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    # Daemons that are no coroutines take a thread each, from the pool of all other functions.
    settings.execution.max_workers = THREADS
    fill(settings.execution.executor)
    settings.watching.inactivity_timeout = 5
    settings.networking.error_backoffs = [0.2, 0.5, 1, 2]
    settings.queueing.error_delays = [0.5, 1, 2]
    settings.posting.enabled = True
    settings.persistence.consistency_timeout = 3


@kopf.on.resume(KIND, id="first", backoff=0.5)
@kopf.on.create(KIND, id="first", backoff=0.5)
@kopf.on.update(KIND, id="first", backoff=0.5)
async def first(name: str, memo: Any, spec: Any, patch: Any, **_: Any) -> None:
    memos[name] = memo
    stumble(0.05)
    note("first", name, spec)
    patch.status["first"] = spec.get("value")


@kopf.on.create(KIND, id="second", backoff=0.5)
@kopf.on.update(KIND, id="second", backoff=0.5)
def second(name: str, spec: Any, **_: Any) -> Any:
    time.sleep(CHANCE.random() * 0.02)
    stumble(0.05)
    note("second", name, spec)
    return {"value": spec.get("value")}


@kopf.on.create(KIND, id="parent", backoff=0.5)
@kopf.on.update(KIND, id="parent", backoff=0.5)
async def parent(name: str, spec: Any, **_: Any) -> None:
    for number in range(2):

        @kopf.subhandler(id=f"child{number}", backoff=0.5)
        async def child(**_: Any) -> None:
            stumble(0.05)

    note("parent", name, spec)


@kopf.on.field(KIND, field="spec.value", id="field", backoff=0.5)
async def field(name: str, spec: Any, **_: Any) -> None:
    note("field", name, spec)


@kopf.on.reconcile(
    KIND, id="reconciled", owns=["configmaps"], deletion=True, backoff=kopf.Backoff(first=0.5, most=2)
)
async def reconciled(
    name: str, spec: Any, deleting: bool, conditions: Any, api: Any, children: Any, **_: Any
) -> None:
    stumble(0.05)
    own = {child.metadata.name for child in children["configmaps"]}
    assert own <= {name}, f"The children of {name}: {own}"
    if deleting:
        await api.delete("configmaps", name, missing_ok=True)
        return
    child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    await kopf.apply({**child, "data": {"value": str(spec.get("value"))}}, conflict="force")
    conditions.set("Applied", True, reason="Applied")
    note("reconciled", name, spec)


@kopf.on.reconcile(KIND, id="mirrored", owns=["secrets"], backoff=kopf.Backoff(first=0.5, most=2))
async def mirrored(name: str, spec: Any, **_: Any) -> None:
    """Apply one or two Secrets, of which only the metadata is watched."""
    stumble(0.05)
    value = spec.get("value")
    secret = {"apiVersion": "v1", "kind": "Secret", "stringData": {"value": str(value)}}
    desired = [{**secret, "metadata": {"name": f"{name}-{number}"}} for number in range(1 + value % 2)]
    await kopf.apply(desired, prune=True, conflict="force")
    note("mirrored", name, spec)


@kopf.on.delete(KIND, id="removal", backoff=0.5)
async def removal(**_: Any) -> None:
    stumble(0.05)
    calls["removal"] += 1


@kopf.on.event(KIND, id="peek")
async def peek(name: str, type: str, known: Any, **_: Any) -> None:
    global index
    index = known
    calls["peek"] += 1
    if type == "DELETED":
        with lock:
            seen.pop(name, None)


@kopf.index(KIND, id="known")
async def known(name: str, spec: Any, **_: Any) -> Any:
    return {name: spec.get("value")}


@kopf.daemon(KIND, id="companion", labels={"daemon": "async"}, cancellation_timeout=2)
async def companion(name: str, stopped: Any, **_: Any) -> None:
    daemons[name] += 1
    try:
        while not stopped:
            await stopped.wait(3)
    finally:
        daemons[name] -= 1


@kopf.daemon(KIND, id="guard", labels={"daemon": "sync"}, cancellation_timeout=2)
def guard(name: str, stopped: Any, **_: Any) -> None:
    daemons[name] += 1
    try:
        while not stopped:
            stopped.wait(1)
    finally:
        daemons[name] -= 1


@kopf.timer(KIND, id="steady", interval=5, initial_delay=1)
async def steady(patch: Any, **_: Any) -> None:
    calls["steady"] += 1
    if CHANCE.random() < 0.05:
        patch.status["steady"] = CHANCE.randrange(1000)


def state() -> dict[str, Any]:
    gc.collect()
    return {
        "python tasks": len(asyncio.all_tasks()),
        "python threads": threading.active_count(),
        "python objects": len(gc.get_objects()),
        "memos": len(memos),
        "daemons": {name: count for name, count in daemons.items() if count},
        "indexed": sorted(index or ()),
        "seen": seen,
        "calls": dict(calls),
        "cached": {body.metadata.name: body["data"]["value"] for body in maps} if maps.is_ready else {},
        "keys": {value: len(maps.select(value=value)) for value in maps.keys("value")}
        if maps.is_ready
        else {},
    }


async def main() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    stop = asyncio.Event()
    running = asyncio.create_task(kopf.operator(clusterwide=True, standalone=True, stop_flag=stop))

    async def answer() -> None:
        while await reader.readline():
            print(json.dumps(state()), flush=True)
        stop.set()

    answering = asyncio.create_task(answer())
    await asyncio.wait([running, answering], return_when=asyncio.FIRST_COMPLETED)
    await running


if __name__ == "__main__":
    kopf.configure(log_prefix=False, quiet=True)
    asyncio.run(main())
