"""Reconcilers in operators: pauses, shutdown, shared watches, coexistence. Sections 1.10, 1.11, 2.3.

Scenarios 1.14.10, 1.14.21, 1.14.25, 2.7.2 (without caches). Scenario 1.14.17 is in tests/faults.
"""

import kopf
import pytest

from tests.support.crds import PEERINGS

RIVAL = {"priority": 100, "lifetime": 1000, "lastseen": "2100-01-01T00:00:00+00:00"}
PEERING = {"apiVersion": "kopf.dev/v1", "kind": "ClusterKopfPeering", "metadata": {"name": "default"}}


@pytest.fixture
def pause(cluster):
    """Begins or ends a pause in favour of another operator."""
    cluster.freeze()
    cluster.apply(PEERINGS)
    cluster.create(PEERING)

    def turn(is_on):
        status = {"rival": RIVAL if is_on else None}
        cluster.patch("clusterkopfpeerings", "default", {"status": status})

    return turn


@pytest.fixture
def start(kopf_operator, pause):
    """Starts an operator that can be paused."""

    def start(handlers, error_backoffs=None):
        settings = kopf.OperatorSettings()
        settings.peering.mandatory = True
        if error_backoffs is not None:
            settings.networking.error_backoffs = error_backoffs
        return kopf_operator(handlers, settings=settings, standalone=False, identity="me")

    return start


@pytest.mark.kopf_embedded_only
def test_1_11_4_a_pause_stops_calls_and_its_end_triggers_all_primaries(cluster, make, start, pause):
    calls, stopped_by = [], []

    def handlers():
        @kopf.on.reconcile("widgets", initial=False)
        async def sync(name, spec, stopped, **_):
            calls.append((name, spec["size"]))
            if spec.get("long"):
                await stopped.wait(3600)
                stopped_by.append(stopped.reason)

    operator = start(handlers)
    operator.wait_until_idle()  # objects of the first list would be initial
    make("a")
    make("b", spec={"size": 1, "long": True})
    operator.wait_until_idle()
    assert sorted(calls) == [("a", 1), ("b", 1)]
    pause(True)
    operator.wait_until_idle()
    assert [reason for reason in stopped_by if kopf.DaemonStoppingReason.OPERATOR_PAUSING in reason]
    cluster.patch("widgets", "a", {"spec": {"size": 2}})
    operator.wait_until_idle()
    cluster.advance(10)
    assert len(calls) == 2
    cluster.patch("widgets", "b", {"spec": {"long": None}})
    pause(False)
    operator.wait_until_idle()
    assert sorted(calls[2:]) == [("a", 2), ("b", 1)]


@pytest.mark.kopf_embedded_only
@pytest.mark.parametrize("late", ["widgets", "configmaps"])
def test_1_11_4_calls_after_a_pause_wait_for_the_lists_of_all_kinds(cluster, make, start, pause, late):
    calls = []

    def handlers():
        @kopf.on.reconcile("widgets", owns=["configmaps"])
        async def sync(name, spec, children, **_):
            calls.append((name, spec["size"], len(children["configmaps"])))
            return kopf.Requeue(5)

    operator = start(handlers)
    owner = kopf.build_owner_reference(make("a"))
    make("b")
    metadata = {"name": "child", "ownerReferences": [owner]}
    cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    operator.wait_until_idle()
    assert ("a", 1, 1) in calls
    pause(True)
    operator.wait_until_idle()
    cluster.patch("widgets", "a", {"spec": {"size": 2}})
    cluster.delete("widgets", "b")
    cluster.delete("configmaps", "child")
    cluster.advance(10)
    calls.clear()
    cluster.inject("latency", 0.3, verb="list", resource=late, times=1)
    pause(False)
    operator.wait_until_idle()
    assert calls == [("a", 2, 0)]
    cluster.advance(5)
    assert calls == [("a", 2, 0)] * 2


@pytest.mark.kopf_embedded_only
def test_1_11_4_all_primaries_are_triggered_after_a_pause_whose_first_list_fails(cluster, make, start, pause):
    calls = []

    def handlers():
        @kopf.on.reconcile("widgets")
        async def sync(name, stopped, **_):
            calls.append(name)
            if len(calls) == 1:
                await stopped.wait(3600)

    operator = start(handlers, error_backoffs=[])
    make("a")
    operator.wait_until_idle()
    pause(True)
    operator.wait_until_idle()
    assert calls == ["a"]
    cluster.inject("code", 500, verb="list", resource="widgets", times=1)
    pause(False)
    operator.wait_until_idle()
    cluster.advance(5)
    assert calls == ["a", "a"]


LONG = """
import asyncio, kopf

@kopf.on.reconcile("widgets")
async def sync(name, stopped, patch, api, memo, **_):
    memo.calls.append(("sync", "started"))
    await stopped.wait(60)
    found = await api.get("widgets", name)
    patch.status["seen"] = found.metadata["name"]
    memo.calls.append(("sync", "ended"))

@kopf.on.cleanup()
def clean(memo, **_):
    memo.calls.append(("clean", None))
"""


def test_1_14_21_a_call_finishes_at_the_shutdown_and_its_patch_is_written(run, make, cluster, caplog):
    running = run(source=LONG)
    make()
    running.until("sync")
    running.stop()
    assert running.of("sync") == ["started", "ended"]
    assert cluster.get("widgets", "one")["status"] == {"seen": "one"}
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "WARNING")]


SHARED = """
import kopf

@kopf.index("configmaps")
def names(name, **_):
    return {name: True}

@kopf.on.event("configmaps")
def noticed(name, memo, **_):
    memo.calls.append(("noticed", name))

@kopf.on.reconcile("widgets", id="a", owns=["configmaps"])
def first(memo, names, **_):
    memo.calls.append(("a", sorted(names)))

@kopf.on.reconcile("configmaps", id="b", watches=[kopf.watch("widgets", map=kopf.same_name())])
def second(name, memo, **_):
    memo.calls.append(("b", name))
"""


@pytest.mark.kopf_embedded_only
def test_2_7_2_all_consumers_of_a_kind_share_one_list_and_one_watch(run, make, cluster):
    make("cm")
    cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm"}})
    running = run(source=SHARED)
    for handler in ("noticed", "a", "b"):
        running.until(handler)
    running.settle()
    assert running.of("a") == [["cm"]]
    for plural in ("configmaps", "widgets"):
        reads = [
            "watch=true" in request.query
            for request in cluster.requests
            if request.method == "GET" and request.path.endswith(f"/{plural}")
        ]
        assert sorted(reads) == [False, True], plural
    before = len(running.of("b"))
    cluster.patch("widgets", "cm", {"spec": {"size": 2}})
    running.until("b", before + 1)


ZONES = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: zones.behaviours.example.com}
spec:
  group: behaviours.example.com
  scope: Cluster
  names: {plural: zones, singular: zone, kind: Zone, listKind: ZoneList}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""
OWNER = """
import kopf

@kopf.on.reconcile("zones", owns=["configmaps", "namespaces"])
def sync(name, memo, **_):
    memo.calls.append(("sync", name))
"""


def test_1_14_10_owners_can_be_cluster_scoped_and_of_another_version(run, cluster):
    cluster.apply(ZONES)
    zone = cluster.create(
        {"apiVersion": "behaviours.example.com/v1", "kind": "Zone", "metadata": {"name": "z"}}
    )
    running = run(source=OWNER)
    running.until("sync")
    owner = {**kopf.build_owner_reference(zone), "apiVersion": "behaviours.example.com/v0"}
    metadata = {"name": "child", "ownerReferences": [owner]}
    cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    running.until("sync", 2)
    # First the child: the garbage collector would delete it, and its watch can be ahead of that of zones.
    cluster.delete("configmaps", "child")
    running.until("sync", 3)
    own = {"name": f"{cluster.namespace}-zone", "ownerReferences": [owner]}
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": own})
    running.until("sync", 4)
    before = len(running.of("sync"))
    cluster.patch("namespaces", own["name"], {"metadata": {"labels": {"a": "b"}}})
    running.until("sync", before + 1)
    cluster.api.delete("namespaces", own["name"])
    cluster.api.wait_for("namespaces", own["name"], lambda body: body is None, timeout=60)
    running.settle()
    before = len(running.of("sync"))
    cluster.delete("zones", "z")
    running.settle()
    assert running.of("sync") == ["z"] * before


REQUEUED = """
import kopf

@kopf.on.reconcile("parts", initial=False)
def sync(body, memo, **_):
    memo.calls.append(("sync", body["apiVersion"]))
    return kopf.Requeue(60)
"""


def parts(*served):
    """The CRD of parts with the versions v1 and v2, of which these are served."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [
        {"name": name, "served": name in served, "storage": name == served[-1], "schema": schema}
        for name in ("v1", "v2")
    ]
    names = {"plural": "parts", "singular": "part", "kind": "Part", "listKind": "PartList"}
    spec = {"group": "example.org", "scope": "Cluster", "names": names, "versions": versions}
    metadata = {"name": "parts.example.org"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": spec,
    }


@pytest.mark.kopf_embedded_only
def test_primaries_are_reconciled_again_when_another_version_is_watched(run, cluster):
    cluster.freeze()
    cluster.apply(parts("v1"))
    running = run(source=REQUEUED)
    running.settle()
    cluster.create({"apiVersion": "example.org/v1", "kind": "Part", "metadata": {"name": "one"}})
    running.until("sync")
    cluster.apply(parts("v2"))
    running.until("sync", 2)
    running.settle()
    cluster.advance(60)
    assert running.of("sync") == ["example.org/v1", "example.org/v2", "example.org/v2"]


BOTH = """
import kopf

@kopf.on.create("widgets")
@kopf.on.update("widgets")
def changed(reason, memo, **_):
    memo.calls.append(("changed", str(reason)))

@kopf.on.delete("widgets")
def deleted(memo, **_):
    memo.calls.append(("deleted", None))

@kopf.on.reconcile("widgets")
def sync(spec, memo, **_):
    memo.calls.append(("sync", spec["size"]))
"""


def test_1_14_25_change_handlers_work_together_with_reconcilers(run, make, cluster, handled):
    running = run(source=BOTH)
    make()
    handled()
    running.until("sync")
    cluster.patch("widgets", "one", {"spec": {"size": 2}})
    running.until("sync", 2)
    running.until("changed", 2)
    running.settle()
    # The annotations of the change handlers are no triggers.
    assert running.of("sync") == [1, 2]
    assert len(running.of("changed")) == 2
    cluster.delete("widgets", "one")
    cluster.wait_until_gone("widgets", "one")
    running.settle()
    assert (len(running.of("deleted")), running.of("sync")) == (1, [1, 2])


PAUSED = """
import kopf

@kopf.on.reconcile("widgets")
def sync(spec, memo, **_):
    memo.calls.append(("sync", spec["size"]))
"""


def test_1_14_25_a_paused_primary_is_reconciled_when_the_annotation_is_removed(run, make, cluster):
    paused = {"kit.kopf.zalando.org/paused": "true"}
    running = run(source=PAUSED)
    make(annotations=paused)
    make("other", spec={"size": 0})
    running.until("sync")
    for size in (2, 3):
        cluster.patch("widgets", "one", {"spec": {"size": size}})
    running.settle()
    assert running.of("sync") == [0]
    cluster.patch("widgets", "one", {"metadata": {"annotations": {"kit.kopf.zalando.org/paused": None}}})
    running.until("sync", 2)
    running.settle()
    assert running.of("sync") == [0, 3]


CHANGES = """
import kopf

@kopf.on.create("widgets")
@kopf.on.update("widgets")
def changed(spec, patch, **_):
    patch.status["seen"] = spec["size"]

@kopf.on.delete("widgets")
def deleted(**_):
    pass
"""


@pytest.mark.kopf_embedded_only
def test_1_14_25_a_reconciler_causes_no_requests_of_change_handlers(run, make, cluster, handled):
    sent = []
    for source in (CHANGES, CHANGES + PAUSED):
        running = run(source=source)
        running.settle()
        cluster.clear_requests()
        make()
        handled(condition=lambda body: body.get("status", {}).get("seen") == 1)
        running.settle()
        cluster.patch("widgets", "one", {"spec": {"size": 2}})
        handled(condition=lambda body: body["status"]["seen"] == 2)
        running.settle()
        cluster.delete("widgets", "one")
        cluster.wait_until_gone("widgets", "one")
        running.settle()
        sent.append([(it.method, it.path) for it in cluster.requests if it.method != "GET"])
        running.stop()
    assert len(sent[0]) > 3
    assert sent[0] == sent[1]


@pytest.mark.kopf_embedded_only
def test_6_5_children_that_another_operator_applies_during_a_pause_are_pruned(cluster, make, start, pause):
    children = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}} for name in ("one", "two")
    ]

    def handlers():
        @kopf.on.reconcile("widgets")
        async def sync(**_):
            await kopf.apply(children[:1], prune=True)

    operator = start(handlers)
    make("a")
    operator.wait_until_idle()
    pause(True)
    operator.wait_until_idle()
    with kopf.connect_sync(kubeconfig=cluster.kubeconfig) as api:
        owner = cluster.get("widgets", "a")
        kopf.apply_sync(children, owner=owner, prune=True, api=api.in_namespace(cluster.namespace))
    assert cluster.find("configmaps", "two")
    pause(False)
    operator.wait_until_idle()
    names = [body.metadata.name for body in cluster.api.list("configmaps", cluster.namespace)]
    assert "one" in names and "two" not in names
