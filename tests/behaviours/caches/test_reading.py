"""Reading of caches. Section 2.2: K1 to K7; scenarios 2.7.1, 2.7.8."""

import threading

import kopf
import pytest
from kopf.testing import Operator

from .conftest import wait_ready, wait_until

INDEXED = """
import kopf

data = kopf.cache("configmaps", id="maps", labels={"ours": kopf.PRESENT}, by={
    "node": "data.node", "finalizer": "metadata.finalizers[*]", "ours": ("metadata", "labels", "ours"),
    "size": lambda body, **_: [len(body["data"]), "all"],
})

@kopf.on.create("widgets")
def created(name, body, memo, maps, **_):
    assert maps is data
    memo.calls.append(("get", maps.get("cm-7").spec, maps.get("missing"), maps.get("cm-7")["data"]["node"]))
    memo.calls.append(("node", [one.metadata.name for one in maps.select(node="n3", labels={"ours": "1"})]))
    memo.calls.append(("owner", [one.metadata.name for one in data.select(owner=body)]))
    memo.calls.append(("fields", [one.metadata.name for one in data.select(fields={"data.number": "11"})]))
    memo.calls.append(("keys", sorted(data.keys("node")), data.keys("finalizer"), data.keys("size")))
    memo.calls.append(("len", len(data), len(list(data)), data.get("cm-1") in data, {} in data))
    try:
        data.select(zone="x")
    except TypeError as e:
        memo.calls.append(("undeclared", str(e)))
"""


def test_2_7_1_objects_are_found_without_requests(run, make, cluster, create):
    one = make("one")
    total = 1000 if cluster.kind == "embedded" else 60
    for number in range(total):
        owner = {"ownerReferences": [kopf.build_owner_reference(one)]} if number in (4, 44) else {}
        labels = {"ours": str(number % 2)}
        create(f"cm-{number}", {"node": f"n{number % 10}", "number": str(number)}, labels=labels, **owner)
    create("other", {"node": "n3"})
    running = run(source=INDEXED)
    running.until("undeclared")
    running.settle()
    assert running.of("get") == [({}, None, "n7")]
    expected = sorted(f"cm-{number}" for number in range(total) if number % 10 == 3)
    assert running.of("node") == [expected]
    assert running.of("owner") == [["cm-4", "cm-44"]]
    assert running.of("fields") == [["cm-11"]]
    assert running.of("keys") == [([f"n{node}" for node in range(10)], [], ["all", 2])]
    assert running.of("len") == [(total, total, True, False)]
    assert "no key" in running.of("undeclared")[0]
    running.stop()
    if cluster.kind == "embedded":
        requests = [
            item for item in cluster.requests if "configmaps" in item.path and "watch" not in item.query
        ]
        assert all("labelSelector=ours" in item.query for item in requests)
        assert len(requests) == (total - 1) // 500 + 1


def test_k1_the_namespace_is_that_of_the_handled_object(run, make, cluster, create):
    source = """
import kopf
maps = kopf.cache("configmaps", labels="k1", id="maps")

@kopf.on.create("widgets")
def created(memo, namespace, **_):
    memo.calls.append(("own", maps.get("cm")["data"]["x"], namespace))
    found = maps.find({"apiVersion": "v1", "kind": "ConfigMap", "name": "cm", "namespace": namespace})
    other = maps.find(kopf.Ref("x", "cm", namespace, "other"))
    memo.calls.append(("found", found.metadata.namespace == namespace, other))
"""
    make("one")
    create("cm", {"x": "1"}, labels={"k1": "y"})
    running = run(source=source)
    running.until("found")
    running.settle()
    assert running.of("own") == [("1", cluster.namespace)]
    assert running.of("found") == [(True, None)]


@pytest.mark.kopf_embedded_only
def test_k1_without_a_namespace_names_must_be_unique(cluster, create):
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    create("twice")
    create("twice", namespace="other")
    create("once", namespace="other")
    caches = []

    def declare():
        caches.append(kopf.cache("configmaps"))
        caches.append(kopf.cache("namespaces"))

    with Operator(cluster, declare):
        maps, namespaces = caches
        wait_ready(maps)
        wait_ready(namespaces)
        with pytest.raises(LookupError, match="'default', 'other'"):
            maps.get("twice")
        assert maps.get("once").metadata.namespace == "other"
        assert maps.get("twice", "other").metadata.namespace == "other"
        assert namespaces.get("other").metadata.name == "other"
        names = [(one.metadata.namespace, one.metadata.name) for one in maps]
        assert names == sorted(names)
    with pytest.raises(LookupError, match="no running operator"):
        maps.get("once")


def test_k6_a_cache_of_several_operators_is_read_only_by_their_handlers(cluster, create, make):
    create("cm", labels={"k6": "y"})
    registry, seen = kopf.OperatorRegistry(), threading.Semaphore(0)
    maps = kopf.cache("configmaps", id="maps", labels="k6", registry=registry)

    @kopf.on.event("widgets", registry=registry)
    def look(**_):
        if [one.metadata.name for one in maps] == ["cm"]:
            seen.release()

    with Operator(cluster, registry=registry):
        wait_ready(maps)
        with Operator(cluster, registry=registry):
            make("one")
            assert all(seen.acquire(timeout=60) for _ in range(2)), "each operator reads its own"
            with pytest.raises(LookupError, match="several running operators"):
                maps.get("cm")
        assert maps.get("cm", cluster.namespace) is not None


def test_2_7_8_bodies_are_views_of_their_own(cluster, create):
    create("cm", {"x": "1"}, labels={"k2": "y"}, finalizers=["example.com/a"])
    caches = []
    with Operator(
        cluster, lambda: caches.append(kopf.cache("configmaps", id="maps", labels={"k2": ["y", "z"]}))
    ):
        (maps,) = caches
        wait_ready(maps)
        first, second = maps.get("cm"), maps.get("cm")
        first["metadata"]["finalizers"].append("changed")
        first["data"]["x"] = "changed"
        assert second["data"] == {"x": "1"} and second["metadata"]["finalizers"] == ["example.com/a"]
        assert maps.get("cm")["data"] == {"x": "1"}
        cluster.patch("configmaps", "cm", {"data": {"x": "2"}, "metadata": {"finalizers": None}})
        wait_until(lambda: maps.get("cm")["data"] == {"x": "2"})
        assert second["data"] == {"x": "1"}
        assert maps.memory_size > 0 and maps.stale_for == 0


def test_k5_an_unready_cache_cannot_be_read_unless_it_is_optional(cluster):
    caches = []

    def declare():
        caches.append(kopf.cache("unknowns", id="required"))
        caches.append(kopf.cache("unknowns", id="spare", optional=True))

    with Operator(cluster, declare) as operator:
        operator.wait_until_idle()
        required, spare = caches
        with pytest.raises(TimeoutError):
            required.wait_ready(0.1)
        with pytest.raises(LookupError, match="does not exist"):
            required.get("x")
        assert not required.is_ready and not spare.is_ready
        assert (spare.get("x"), len(spare), list(spare), bool(spare)) == (None, 0, [], True)


def test_k7_failed_functions_compute_no_keys_and_are_logged_once(cluster, create, caplog):
    def compute(body, **_):
        if body["data"]["x"] == "bad":
            raise ValueError("boo")
        return body["data"]["x"]

    create("cm", {"x": "good"}, labels={"k7": "y"})
    caches = []
    declare = lambda: caches.append(kopf.cache("configmaps", labels="k7", by={"x": compute}))  # noqa: E731
    with Operator(cluster, declare):
        (maps,) = caches
        wait_ready(maps)
        assert maps.keys("x") == ["good"]
        for number in range(2):
            cluster.patch("configmaps", "cm", {"data": {"x": "bad", "number": str(number)}})
            wait_until(
                lambda number=number: maps.get("cm", cluster.namespace)["data"].get("number") == str(number)
            )
        assert maps.keys("x") == [] and len(maps) == 1
        cluster.patch("configmaps", "cm", {"data": {"x": "fine"}})
        wait_until(lambda: maps.select(x="fine"))
    failures = [
        record.getMessage() for record in caplog.records if "cannot be computed" in record.getMessage()
    ]
    assert len(failures) == 1 and "boo" in failures[0]


@pytest.mark.kopf_embedded_only
@pytest.mark.parametrize("change", ["label", "relist"])
def test_k7_objects_that_disappear_while_their_functions_are_called_stay_away(cluster, create, change):
    entered, proceed = threading.Event(), threading.Event()
    caches = []

    def compute(name, **_):
        entered.set()
        assert proceed.wait(30)
        return name

    def declare():
        caches.append(kopf.cache("configmaps", id="ours", labels="app", by={"key": compute}))
        caches.append(kopf.cache("configmaps", id="all"))

    with Operator(cluster, declare) as operator:
        ours, everything = caches
        wait_ready(ours, everything)
        operator.wait_until_idle()
        create("cm", labels={"app": "x"})
        try:
            assert entered.wait(30)
            if change == "label":
                cluster.patch("configmaps", "cm", {"metadata": {"labels": {"app": None}}})
                # The watch of this cache may not have received the object yet.
                wait_until(lambda: (found := everything.get("cm", "default")) and not found.metadata.labels)
            else:
                cluster.inject("code", 500, verb="watch", resource="configmaps")
                cluster.drop_watches("configmaps")
                cluster.delete("configmaps", "cm")
                cluster.compact()
                cluster.clear_faults()
                wait_until(lambda: everything.get("cm", "default") is None)
        finally:
            proceed.set()
        operator.wait_until_idle()
        assert [one.metadata.name for one in ours] == [] and ours.keys("key") == []
