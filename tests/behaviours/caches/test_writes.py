"""Reads after own writes. Section 2.5: W1 to W6; section 6.3; scenarios 2.7.4, 2.7.5."""

import threading

import kopf
import pytest
from kopf.testing import Operator

from .conftest import wait_ready, wait_until

CREATING = """
import kopf

maps = kopf.cache("configmaps", id="maps", labels="ours", by={"x": "data.x"})

def config_map(name, x):
    metadata = {"name": name, "labels": {"ours": "y"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": x}}

@kopf.on.reconcile("widgets")
async def sync(name, spec, memo, api, **_):
    if maps.get(name) is None:
        await api.create(config_map(name, str(spec["size"])))
    memo.calls.append(("sync", maps.get(name)["data"]["x"], len(maps.select(x=str(spec["size"])))))
    if memo.setdefault("count", 0) < 1:
        memo.count += 1
        raise kopf.Requeue(0, "again")
"""


@pytest.mark.kopf_embedded_only
def test_2_7_4_an_own_creation_is_readable_at_once_and_in_the_next_reconciliation(run, make, cluster):
    running = run(source=CREATING)
    running.settle()
    cluster.inject("silence", resource="configmaps")
    make("one")
    running.until("sync")
    waiting = threading.Event()
    waiting.wait(0.5)
    assert running.of("sync") == [("1", 1)], "the next reconciliation waits for the event"
    cluster.clear_faults()
    cluster.drop_watches("configmaps")
    running.until("sync", 2)
    running.settle()
    assert running.of("sync") == [("1", 1), ("1", 1)]
    creations = [item for item in cluster.requests if item.method == "POST" and "configmaps" in item.path]
    assert len(creations) == 1


def test_w1_w4_creations_changes_and_deletions_are_readable_at_once(run, make, cluster):
    source = """
import kopf

maps = kopf.cache("configmaps", id="maps", labels="ours", by={"x": "data.x"})

@kopf.on.create("widgets")
def created(memo, api, **_):
    metadata = {"name": "cm", "labels": {"ours": "y"}}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": "0"}}
    api.create(body)
    seen = [len(maps)]
    for number in range(1, 20):
        api.patch("configmaps", "cm", {"data": {"x": str(number)}})
        seen.append(maps.get("cm")["data"]["x"] == str(number) and len(maps.select(x=str(number))) == 1)
    api.using(dry_run=True).patch("configmaps", "cm", {"data": {"x": "dry"}})
    seen.append(maps.get("cm")["data"]["x"])
    api.patch("configmaps", "cm", {"metadata": {"finalizers": ["example.com/x"]}})
    api.delete("configmaps", "cm")
    seen.append(maps.get("cm").metadata.deletion_timestamp is not None)
    api.patch("configmaps", "cm", {"metadata": {"finalizers": None}})
    made = api.create({**body, "metadata": {"generateName": "made-", "labels": {"ours": "y"}}})
    seen.append(maps.get(made.metadata.name) is not None)
    api.delete("configmaps", made.metadata.name)
    seen.append(maps.get(made.metadata.name))
    memo.calls.append(("seen", seen))
"""
    running = run(source=source)
    make("one")
    running.until("seen")
    running.settle()
    assert running.of("seen") == [[1, *[True] * 19, "19", True, True, None]]


@pytest.mark.kopf_embedded_only
def test_2_7_5_the_cache_never_returns_to_a_state_before_an_own_write(cluster, create, make):
    create("cm", {"x": "0"}, labels={"ours": "y"})
    caches, written = [], threading.Event()

    def declare():
        caches.append(kopf.cache("configmaps", id="maps", labels="ours"))

        @kopf.on.create("widgets")
        async def write(api, **_):
            await api.patch("configmaps", "cm", {"data": {"x": "own"}})
            written.set()

    with Operator(cluster, declare) as operator:
        (maps,) = caches
        wait_ready(maps)
        operator.wait_until_idle()
        cluster.inject("silence", resource="configmaps")
        cluster.patch("configmaps", "cm", {"data": {"y": "before"}})
        make("one")
        assert written.wait(30)
        cluster.patch("configmaps", "cm", {"data": {"y": "after"}})
        assert maps.get("cm", "default")["data"] == {"x": "own", "y": "before"}
        seen, is_over = [], threading.Event()

        def read():
            while not is_over.is_set():
                data = maps.get("cm", "default")["data"]
                if not seen or seen[-1] != data:
                    seen.append(data)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            cluster.clear_faults()
            cluster.drop_watches("configmaps")
            wait_until(lambda: seen and seen[-1]["y"] == "after")
        finally:
            is_over.set()
            reader.join()
        assert seen == [{"x": "own", "y": "before"}, {"x": "own", "y": "after"}]


@pytest.mark.kopf_embedded_only
def test_w2_an_overlay_ends_after_the_consistency_timeout(cluster, create, make):
    create("cm", {"x": "0"}, labels={"ours": "y"})
    settings = kopf.OperatorSettings()
    settings.persistence.consistency_timeout = 0.5
    caches, written = [], threading.Event()

    def declare():
        caches.append(kopf.cache("configmaps", id="maps", labels="ours"))

        @kopf.on.create("widgets")
        def write(api, **_):
            api.patch("configmaps", "cm", {"data": {"x": "own"}})
            written.set()

    with Operator(cluster, declare, settings=settings) as operator:
        wait_ready(caches[0])
        operator.wait_until_idle()
        cluster.inject("silence", resource="configmaps")
        make("one")
        assert written.wait(30)
        wait_until(lambda: caches[0].get("cm", "default")["data"] == {"x": "0"})


UNSELECTED = """
import kopf

maps = kopf.cache("configmaps", id="maps", labels="ours")

@kopf.on.reconcile("widgets")
async def sync(name, memo, api, **_):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    if not memo.setdefault("count", 0):
        await api.create(body)
        await api.patch("configmaps", name, {"data": {"x": "1"}})
    elif memo.count == 1:
        await api.delete("configmaps", name)
    memo.count += 1
    memo.calls.append(("sync", len(maps)))
    if memo.count < 3:
        raise kopf.Requeue(0, "again")
"""


@pytest.mark.kopf_embedded_only
def test_w5_own_writes_of_objects_that_no_cache_selects_delay_nothing(run, make, cluster):
    running = run(source=UNSELECTED)
    running.settle()
    cluster.freeze()
    make("one")
    running.until("sync", 3)
    assert running.of("sync") == [0, 0, 0]


@pytest.mark.kopf_embedded_only
def test_2_3_own_writes_in_other_namespaces_are_not_shown(cluster, make):
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "config"}})
    seen = []

    def declare():
        maps = kopf.cache("configmaps", id="maps", namespaces=["config"])
        # The watch has the objects of all namespaces.
        kopf.on.event("configmaps")(lambda **_: None)

        @kopf.on.create("widgets")
        def created(api, **_):
            for namespace in ("config", "default"):
                metadata = {"name": "cm", "namespace": namespace}
                api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
            seen.append([one.metadata.namespace for one in maps])

    with Operator(cluster, declare) as operator:
        operator.wait_until_idle()
        cluster.inject("silence", resource="configmaps")
        make("one")
        wait_until(lambda: seen)
        cluster.clear_faults()
    assert seen == [["config"]]


APPLYING = """
import kopf

maps = kopf.cache("configmaps", id="maps")

@kopf.on.create("widgets")
@kopf.on.update("widgets")
async def handle(name, memo, spec, **_):
    desired = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"x": "1"}}
    applied = await kopf.apply(desired, conflict="force")
    memo.calls.append(("applied", len(applied.created), len(applied.changed), len(applied.unchanged)))
"""


def test_6_3_a_cached_child_that_is_as_desired_is_not_applied_again(run, make, cluster):
    running = run(source=APPLYING)
    make("one")
    running.until("applied")
    for size in (2, 3):
        cluster.patch("widgets", "one", {"spec": {"size": size}})
        running.until("applied", size)
    running.settle()
    assert running.of("applied") == [(1, 0, 0), (0, 0, 1), (0, 0, 1)]
    cluster.patch("configmaps", "one", {"metadata": {"labels": {"other": "x"}}})
    cluster.patch("widgets", "one", {"spec": {"size": 4}})
    running.until("applied", 4)
    if cluster.kind == "embedded":
        applies = [item for item in cluster.requests if item.method == "PATCH" and "configmaps" in item.path]
        assert len(applies) == 1
        reads = [
            item
            for item in cluster.requests
            if item.method == "GET" and item.path.endswith("/configmaps/one")
        ]
        assert reads == []
    cluster.patch("configmaps", "one", {"data": {"x": "drifted"}})
    wait_until(
        lambda: running.operator.registry and cluster.get("configmaps", "one")["data"]["x"] == "drifted"
    )
    running.settle()
    cluster.patch("widgets", "one", {"spec": {"size": 5}})
    running.until("applied", 5)
    assert running.of("applied")[3:] == [(0, 0, 1), (0, 1, 0)]
