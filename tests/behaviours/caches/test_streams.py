"""Streams of caches, and their readiness. Sections 2.3, 2.4; scenarios 2.7.2, 2.7.3, 2.7.10, 2.7.11."""

import itertools
import threading

import kopf
import pytest
from kopf.testing import Operator

from .conftest import wait_ready, wait_until

SHARED = """
import kopf

first = kopf.cache("widgets", id="first", by={"size": "spec.size"})
second = kopf.cache("widgets", id="second", labels={"a": "b"})

@kopf.index("widgets")
def sizes(spec, name, **_):
    return {name: spec.get("size")}

@kopf.on.reconcile("widgets")
def sync(name, **_):
    pass

@kopf.on.create("widgets")
def created(name, memo, first, second, **_):
    names = lambda cache: [one.metadata.name for one in cache]
    memo.calls.append(("created", name, names(first), names(second), first.keys("size")))
"""


def test_2_7_2_all_consumers_of_a_kind_share_one_stream(run, make, cluster, reads):
    make("one", labels={"a": "b"})
    make("two")
    running = run(source=SHARED)
    running.until("created", 2)
    running.settle()
    calls = sorted(running.of("created"))
    assert calls == [(name, ["one", "two"], ["one"], [1]) for name in ("one", "two")]
    running.stop()
    if cluster.kind == "embedded":
        requests = reads("widgets")
        assert [("watch=true" in item.query) for item in requests] == [False, True]
        assert not any("labelSelector" in item.query for item in requests)


GATED = """
import kopf

maps = kopf.cache("configmaps", id="maps", labels="gated")

@kopf.on.event("widgets")
@kopf.daemon("widgets")
@kopf.on.reconcile("widgets")
def call(memo, **_):
    memo.calls.append(("call", len(maps)))
"""


@pytest.mark.kopf_embedded_only
def test_2_4_no_handler_is_called_before_the_caches_are_ready(run, make, cluster, create):
    make("one")
    create("cm", labels={"gated": "y"})
    cluster.inject("code", 403, verb="list", resource="configmaps", times=2)
    running = run(source=GATED)
    running.until("call", 3)
    running.settle()
    assert set(running.of("call")) == {1}


@pytest.mark.kopf_embedded_only
def test_2_7_3_a_relist_removes_single_objects(cluster):
    names = [f"cm-{number}" for number in range(1000)]
    bodies = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"n": name}}
        for name in names
    ]
    cluster.call_all([("POST", "/api/v1/namespaces/default/configmaps", body) for body in bodies])
    caches = []
    declare = lambda: caches.append(kopf.cache("configmaps", by={"n": "data.n"}))  # noqa: E731
    with Operator(cluster, declare):
        (maps,) = caches
        wait_ready(maps)
        cluster.inject("code", 500, verb="watch", resource="configmaps")
        cluster.drop_watches("configmaps")
        cluster.delete("configmaps", "cm-77")
        cluster.compact()
        seen, is_over = set(), threading.Event()

        def read():
            while not is_over.is_set():
                seen.add(len(maps))

        reader = threading.Thread(target=read)
        reader.start()
        try:
            wait_until(lambda: maps.stale_for > 0)
            cluster.clear_faults()
            wait_until(lambda: len(maps) == 999)
        finally:
            is_over.set()
            reader.join()
        assert seen <= {1000, 999}
        assert maps.select(n="cm-77") == [] and len(maps.keys("n")) == 999
        wait_until(lambda: maps.stale_for == 0)


def test_2_7_10_the_server_selects_what_caches_need(cluster, create, reads):
    create("ours", {"x": "1"}, labels={"app": "a"})
    create("theirs", {"x": "1"}, labels={"app": "b"})
    caches = []

    def declare():
        caches.append(kopf.cache("configmaps", id="a", labels={"app": "a"}))
        caches.append(kopf.cache("configmaps", id="c", labels={"app": ["a", "c"]}))

    with Operator(cluster, declare):
        one, other = caches
        wait_ready(one, other)
        assert [body.metadata.name for body in one] == ["ours"]
        cluster.patch("configmaps", "ours", {"metadata": {"labels": {"app": "c"}}})
        wait_until(lambda: len(one) == 0)
        assert [body.metadata.name for body in other] == ["ours"]
        cluster.patch("configmaps", "ours", {"metadata": {"labels": {"app": "z"}}})
        wait_until(lambda: len(other) == 0)
    if cluster.kind == "embedded":
        requests = reads("configmaps")
        assert requests and all("labelSelector=app+in+%28a%2Cc%29" in item.query for item in requests)


def test_2_3_fields_are_selected_by_the_server(cluster, create, reads):
    create("ours"), create("theirs")
    caches = []
    with Operator(cluster, lambda: caches.append(kopf.cache("configmaps", fields={"metadata.name": "ours"}))):
        wait_ready(caches[0])
        assert [body.metadata.name for body in caches[0]] == ["ours"]
    if cluster.kind == "embedded":
        assert all("fieldSelector=metadata.name%3Dours" in item.query for item in reads("configmaps"))


LATER = """
import kopf

gadgets = kopf.cache("gadgets.caches.example.com", id="gadgets", optional=True)

@kopf.on.create("widgets")
def created(memo, **_):
    memo.calls.append(("created", len(gadgets)))

@kopf.on.update("widgets")
async def updated(memo, **_):
    await gadgets.ready(30)
    memo.calls.append(("updated", [one.metadata.name for one in gadgets]))
"""

GADGETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.caches.example.com}
spec:
  group: caches.example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList}
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""


def test_2_7_11_an_optional_cache_is_filled_when_its_kind_appears(run, make, cluster):
    make("one")
    running = run(source=LATER)
    running.until("created")
    assert running.of("created") == [0]
    cluster.apply(GADGETS)
    cluster.create({"apiVersion": "caches.example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}})
    sizes = itertools.count(2)

    def is_filled():
        # Until the operator has noticed the kind, the cache is ready and empty.
        cluster.patch("widgets", "one", {"spec": {"size": next(sizes)}})
        return running.of("updated")[-1:] == [["g"]]

    wait_until(is_filled)


@pytest.mark.kopf_embedded_only
def test_2_3_other_namespaces_have_streams_of_their_own(cluster, create, reads):
    for name in ("one", "two", "three"):
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        create("cm", namespace=name)
    caches = []

    def declare():
        caches.append(kopf.cache("configmaps", id="own"))
        caches.append(kopf.cache("configmaps", id="named", namespaces=["two", "three"]))
        caches.append(kopf.cache("secrets", id="all", namespaces="*"))

    with Operator(cluster, declare, namespaces=["one"]):
        own, named, everywhere = caches
        for cache in caches:
            wait_ready(cache)
        assert [body.metadata.namespace for body in own] == ["one"]
        assert [body.metadata.namespace for body in named] == ["three", "two"]
        assert len(everywhere) == 0
    paths = {item.path for item in reads("configmaps") + reads("secrets")}
    namespaces = [f"/api/v1/namespaces/{name}/configmaps" for name in ("one", "two", "three")]
    assert paths == {*namespaces, "/api/v1/secrets"}


@pytest.mark.kopf_embedded_only
def test_2_3_objects_of_a_removed_kind_leave_the_cache(cluster):
    cluster.apply(GADGETS)
    cluster.create({"apiVersion": "caches.example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}})
    caches = []
    with Operator(cluster, lambda: caches.append(kopf.cache("gadgets"))):
        (gadgets,) = caches
        wait_ready(gadgets)
        assert len(gadgets) == 1
        cluster.delete("customresourcedefinitions", "gadgets.caches.example.com")
        wait_until(lambda: not gadgets.is_ready)
        with pytest.raises(LookupError, match="does not exist"):
            gadgets.get("g")


@pytest.mark.kopf_embedded_only
@pytest.mark.parametrize("options", [{}, {"metadata_only": True}])
def test_2_3_fields_are_read_in_whole_objects_with_the_defaults_of_the_server(cluster, options):
    for name, spec in (("on", {}), ("off", {"unschedulable": True})):
        cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec})
    caches = []

    def declare():
        for value in ("false", "true"):
            fields = {"spec.unschedulable": value}
            caches.append(kopf.cache("nodes", id=f"nodes_{value}", fields=fields, **options))

    with Operator(cluster, declare) as operator:
        wait_ready(*caches)
        assert [[one.metadata.name for one in cache] for cache in caches] == [["on"], ["off"]]
        cluster.patch("nodes", "on", {"spec": {"unschedulable": True}})
        operator.wait_until_idle()
        assert [[one.metadata.name for one in cache] for cache in caches] == [[], ["off", "on"]]
