"""Reconcilers: owned and watched objects, and external triggers. Sections 1.7, 1.12.

Scenarios 1.14.9, 1.14.11, 1.14.12, 1.14.13, 1.14.20 (in part).
"""

import logging
import threading

import kopf
import pytest

HANDLERS_RAISE = True

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
OWNING = """
import kopf

@kopf.on.reconcile("widgets", owns=["configmaps"])
def sync(name, memo, **_):
    memo.calls.append(("sync", name))
"""


def config_map(name, owner=None, data=None, **meta):
    owners = {"ownerReferences": [kopf.build_owner_reference(owner)]} if owner else {}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **owners, **meta},
        "data": data or {},
    }


def test_1_14_9_the_owner_is_reconciled_when_a_child_appears_changes_moves_and_disappears(run, make, cluster):
    a, b = make("a"), make("b")
    running = run(source=OWNING)
    running.until("sync", 2)
    cluster.create(config_map("other"))
    cluster.create(config_map("child", a))
    running.until("sync", 3)
    cluster.patch("configmaps", "child", {"data": {"x": "1"}})
    running.until("sync", 4)
    assert running.of("sync")[2:] == ["a", "a"]
    owners = config_map("child", b)["metadata"]["ownerReferences"]
    cluster.patch("configmaps", "child", {"metadata": {"ownerReferences": owners}})
    running.until("sync", 6)
    assert sorted(running.of("sync")[4:]) == ["a", "b"]
    cluster.delete("configmaps", "child")
    running.until("sync", 7)
    running.settle()
    assert running.of("sync")[6:] == ["b"]


DIGESTS = """
import kopf

@kopf.on.reconcile("widgets", id="any", owns=["deployments"])
def any_change(name, memo, **_):
    memo.calls.append(("any", name))

@kopf.on.reconcile("widgets", id="spec", owns=[kopf.owned("deployments", changed="generation")])
def changed_spec(name, memo, **_):
    memo.calls.append(("spec", name))

@kopf.on.reconcile("widgets", id="ready", owns=[kopf.owned("deployments", changed="status.readyReplicas")])
def changed_readiness(name, memo, **_):
    memo.calls.append(("ready", name))
"""


def test_1_14_9_the_status_of_a_child_is_a_trigger_unless_declared_otherwise(run, make, cluster):
    labels = {"app": "one"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    owners = config_map("child", make("a"))["metadata"]
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": pod}
    cluster.api.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": owners, "spec": spec})
    running = run(source=DIGESTS)
    names = ("any", "spec", "ready")
    for name in names:
        running.until(name)
    running.settle()

    def counted(change, **options):
        before = [len(running.of(name)) for name in names]
        cluster.api.patch("deployments", "child", change, **options)
        running.until("any", before[0] + 1)
        running.settle()
        return [len(running.of(name)) - count for name, count in zip(names, before, strict=True)]

    status = {"replicas": 1, "readyReplicas": 1}
    assert counted({"status": status}, subresource="status") == [1, 0, 1]
    assert counted({"status": {"observedGeneration": 1}}, subresource="status") == [1, 0, 0]
    assert counted({"spec": {"replicas": 2}}) == [1, 1, 0]


@pytest.mark.kopf_embedded_only
def test_1_14_9_the_owner_is_reconciled_when_a_child_disappears_in_a_gap(run, make, cluster):
    body = make("a")
    cluster.create(config_map("child", body))
    running = run(source=OWNING)
    running.settle()
    before = len(running.of("sync"))
    cluster.inject("code", 500, verb="watch", resource="configmaps")
    cluster.drop_watches("configmaps")
    cluster.delete("configmaps", "child")
    cluster.compact()
    cluster.clear_faults()
    running.until("sync", before + 1)
    running.settle()
    assert running.of("sync")[before:] == ["a"]


MAPPED = """
import kopf

@kopf.on.reconcile("widgets", watches=[kopf.watch("configmaps", map=kopf.by_label("widget"))])
def sync(name, memo, **_):
    memo.calls.append(("sync", name))
"""


def test_1_14_11_both_ends_of_a_mapping_are_reconciled(run, make, cluster):
    make("a"), make("b")
    running = run(source=MAPPED)
    running.until("sync", 2)
    cluster.create(config_map("cm", labels={"widget": "a"}))
    running.until("sync", 3)
    cluster.patch("configmaps", "cm", {"metadata": {"labels": {"widget": "b"}}})
    running.until("sync", 5)
    cluster.delete("configmaps", "cm")
    running.until("sync", 6)
    running.settle()
    calls = running.of("sync")[2:]
    assert (calls[0], sorted(calls[1:3]), calls[3:]) == ("a", ["a", "b"], ["b"])


# Asynchronous: the worker of a thread pool may end after the call is settled, which is a call of Python.
NAMED = """
import kopf

@kopf.on.reconcile("widgets", watches=[kopf.watch("secrets", by="{path}")])
async def sync(name, memo, **_):
    memo.calls.append(("sync", name))
"""


def secret(name):
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}


@pytest.fixture
def python_calls():
    """The calls of functions of Kopf and of handlers in new threads, without those of `kopf.testing`."""
    calls = []

    def record(frame, event, _):
        name = frame.f_globals.get("__name__", "")
        is_counted = name.startswith(("kopf.", "handlers")) and not name.startswith("kopf._testing")
        if event == "call" and is_counted:
            calls.append(f"{name}.{frame.f_code.co_name}")

    threading.setprofile(record)
    yield calls
    threading.setprofile(None)


def test_1_14_12_only_a_named_object_triggers_its_primaries_and_others_need_no_python(
    run, make, cluster, python_calls
):
    make("a", spec={"secretName": "x"})
    make("b")
    running = run(source=NAMED.format(path="spec.secretName"))
    running.until("sync", 2)
    running.settle()

    def calls_of_changes(name, expected):
        """The reconciliations after the creation, a change, and the deletion of a Secret."""
        changes = (
            lambda: cluster.create(secret(name)),
            lambda: cluster.patch("secrets", name, {"stringData": {"k": "v"}}),
            lambda: cluster.delete("secrets", name),
        )
        for change in changes:
            before = len(running.of("sync"))
            change()
            running.until("sync", before + expected)
            running.settle()
            yield running.of("sync")[before:]

    python_calls.clear()
    assert list(calls_of_changes("other", 0)) == [[], [], []]
    assert python_calls == []
    assert list(calls_of_changes("x", 1)) == [["a"], ["a"], ["a"]]
    assert len(python_calls) > 3


def test_1_7_an_object_that_is_named_in_a_list_triggers_its_primaries(run, make, cluster):
    make("a", spec={"secrets": [{"name": "x"}, {"name": "y"}]})
    make("b")
    running = run(source=NAMED.format(path="spec.secrets[*].name"))
    running.until("sync", 2)
    cluster.create(secret("other"))
    cluster.create(secret("y"))
    running.until("sync", 3)
    cluster.patch("secrets", "y", {"stringData": {"k": "v"}})
    running.until("sync", 4)
    cluster.delete("secrets", "y")
    running.until("sync", 5)
    running.settle()
    assert running.of("sync")[2:] == ["a", "a", "a"]


@pytest.fixture
def miss_deletion(cluster):
    """Deletes an object while it is not watched."""

    def delete(plural, name):
        cluster.inject("code", 500, verb="watch", resource=plural)
        cluster.drop_watches(plural)
        cluster.delete(plural, name)
        cluster.compact()
        cluster.clear_faults()

    return delete


@pytest.mark.kopf_embedded_only
def test_1_7_a_named_object_that_is_older_than_its_name_in_a_primary_disappears_in_a_gap(
    run, make, cluster, miss_deletion
):
    for name in ("x", "y"):
        cluster.create(secret(name))
    running = run(source=NAMED.format(path="spec.secretName"))
    running.settle()
    make("a", spec={"secretName": "x"})
    make("b", spec={"secretName": "missing"})
    running.until("sync", 2)
    running.settle()
    miss_deletion("secrets", "x")
    running.until("sync", 3)
    running.settle()
    assert "a" in running.of("sync")[2:]
    before = len(running.of("sync"))
    miss_deletion("secrets", "y")
    cluster.create(secret("x"))
    running.until("sync", before + 1)
    running.settle()
    assert running.of("sync")[before:] == ["a"], "the known absence of an object triggers nothing again"
    miss_deletion("secrets", "x")
    running.until("sync", before + 2)
    running.settle()
    assert running.of("sync")[before:] == ["a", "a"]


LABELLED = """
import kopf

@kopf.on.event("secrets")
def event(**_):
    pass

watched = kopf.watch("secrets", by="spec.secretName", labels={"ours": kopf.PRESENT})

@kopf.on.reconcile("widgets", watches=[watched])
def sync(name, memo, **_):
    memo.calls.append(("sync", name))
"""


def test_1_7_a_named_object_that_is_older_than_its_name_in_a_primary_loses_its_label(run, make, cluster):
    cluster.create({**secret("x"), "metadata": {"name": "x", "labels": {"ours": "y"}}})
    running = run(source=LABELLED)
    running.settle()
    make("a", spec={"secretName": "x"})
    running.until("sync")
    running.settle()
    cluster.patch("secrets", "x", {"metadata": {"labels": {"ours": None}}})
    running.until("sync", 2)
    cluster.patch("secrets", "x", {"stringData": {"k": "v"}})
    running.settle()
    assert running.of("sync") == ["a", "a"]


@pytest.mark.kopf_embedded_only
def test_1_7_named_objects_of_a_cluster_scoped_kind_that_appears_later(run, make, cluster):
    make("a", spec={"secretName": "z"})
    running = run(
        source=NAMED.format(path="spec.secretName").replace("secrets", "zones.behaviours.example.com")
    )
    running.settle()
    cluster.apply(ZONES)
    running.until("sync")
    running.settle()
    before = len(running.of("sync"))
    zone = {"apiVersion": "behaviours.example.com/v1", "kind": "Zone", "metadata": {"name": "z"}}
    cluster.create(zone)
    running.until("sync", before + 1)
    cluster.delete("zones", "z")
    running.until("sync", before + 2)
    running.settle()
    assert running.of("sync")[before:] == ["a", "a"]


FAILING = """
import kopf

def to_widget(data, name, **_):
    if data.get("bad"):
        raise ValueError("boo")
    return data["widget"]

def mapped(body, **kwargs):
    return to_widget(body.get("data") or {}, **kwargs)

watched = kopf.watch("configmaps", map=mapped, labels={"watched": kopf.PRESENT})

@kopf.on.reconcile("widgets", watches=[watched])
def sync(name, memo, **_):
    memo.calls.append(("sync", name))
"""


def test_1_14_13_if_a_map_fails_the_previous_primaries_are_reconciled(run, make, cluster, caplog):
    make("a"), make("b")
    running = run(source=FAILING)
    running.until("sync", 2)
    cluster.create(config_map("cm", data={"widget": "a"}, labels={"watched": "y"}))
    running.until("sync", 3)
    for number in range(2):
        cluster.patch("configmaps", "cm", {"data": {"bad": str(number)}})
        running.until("sync", 4 + number)
    cluster.create(config_map("fine", data={"widget": "b"}, labels={"watched": "y"}))
    running.until("sync", 6)
    cluster.patch("configmaps", "cm", {"metadata": {"labels": {"watched": None}}})
    running.until("sync", 7)
    running.settle()
    assert running.of("sync")[2:] == ["a", "a", "a", "b", "a"]
    failures = [record for record in caplog.records if "boo" in record.getMessage()]
    assert failures and all(record.k8s_ref["name"] == "cm" for record in failures)


def test_1_12_external_triggers(run, make, cluster):
    running = run()
    body = make("a")
    make("b")
    running.until("sync", 2)
    registry = running.operator.registry
    kopf.trigger(kopf.ref(body), registry=registry)
    running.until("sync", 3)
    kopf.trigger(("widgets", "b", cluster.namespace), id="sync", registry=registry)
    running.until("sync", 4)
    kopf.trigger(("widgets", "unknown", cluster.namespace), registry=registry)
    kopf.trigger_all("sync", registry=registry)
    running.until("sync", 6)
    running.settle()
    assert [call[0] for call in running.of("sync")][2:4] == ["a", "b"]
    assert sorted(call[0] for call in running.of("sync")[4:]) == ["a", "b"]
    running.stop()
    with pytest.raises(LookupError, match="no running operator"):
        kopf.trigger(kopf.ref(body), registry=registry)


TIMED = """
import kopf

@kopf.on.reconcile("widgets")
def sync(name, memo, **_):
    memo.calls.append(("sync", name))

@kopf.timer("widgets", interval=60, initial_delay=60)
def check(body, **_):
    kopf.trigger(body)
"""


@pytest.mark.kopf_embedded_only
def test_1_12_handlers_trigger_reconcilers_of_their_own_operator(run, make, cluster):
    cluster.freeze()
    running = run(source=TIMED)
    make("a")
    cluster.advance(61)
    assert running.of("sync") == ["a", "a"]


MISSING = """
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.reconciling.warn_after = 1

@kopf.on.reconcile("widgets", id="waiting", owns=["gadgets"])
def waiting(name, memo, **_):
    memo.calls.append(("waiting", name))

@kopf.on.reconcile("widgets", id="ready")
def ready(name, memo, **_):
    memo.calls.append(("ready", name))
"""
GADGETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.behaviours.example.com}
spec:
  group: behaviours.example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


@pytest.fixture
def warned():
    """Waits until the text is logged."""
    logged, arrived = [], threading.Condition()

    class Handler(logging.Handler):
        def emit(self, record):
            with arrived:
                logged.append(record.getMessage())
                arrived.notify_all()

    def wait(text):
        with arrived:
            return arrived.wait_for(lambda: any(text in line for line in logged), timeout=30)

    handler = Handler()
    logging.getLogger().addHandler(handler)
    yield wait
    logging.getLogger().removeHandler(handler)


def test_1_14_20_a_reconciler_waits_for_a_missing_kind_and_others_do_not(run, make, cluster, warned):
    make("a")
    running = run(source=MISSING)
    running.until("ready")
    warning = "Reconciler 'waiting' has been waiting for 1 s. Missing: list gadgets: no such kind"
    assert warned(warning)
    assert running.of("waiting") == []
    cluster.apply(GADGETS)
    running.until("waiting")
    running.settle()
    assert running.of("ready") == ["a"]


ELSEWHERE = """
import kopf

@kopf.on.reconcile("widgets", watches=[
    kopf.watch(
        "configmaps",
        by=kopf.reference(name="spec.source", namespace="spec.from"),
        namespaces=["shared", "templates"],
    ),
    kopf.watch("configmaps", map=kopf.same_name()),
    kopf.watch("secrets", map=lambda name, **_: kopf.Ref("widgets", name, "one"), namespaces="*"),
])
def sync(name, memo, **_):
    memo.calls.append(("sync", name))
"""


@pytest.mark.kopf_embedded_only
def test_1_7_related_objects_are_watched_in_other_namespaces(run, cluster):
    for name in ("one", "shared", "templates", "unrelated"):
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    widget = {"apiVersion": "behaviours.example.com/v1", "kind": "Widget"}
    spec = {"source": "a", "from": "shared"}
    cluster.create({**widget, "metadata": {"name": "w", "namespace": "one"}, "spec": spec})
    running = run(source=ELSEWHERE, namespaces=["one"])
    running.until("sync", 1)
    for name, namespace in [("a", "templates"), ("w", "shared"), ("a", "unrelated"), ("w", "unrelated")]:
        cluster.create(config_map(name, namespace=namespace))
    running.settle()
    assert len(running.of("sync")) == 1
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "w", "namespace": "unrelated"}}
    for count, body in enumerate(
        [config_map("a", namespace="shared"), config_map("w", namespace="one"), secret], start=2
    ):
        cluster.create(body)
        running.until("sync", count)
    running.settle()
    assert len(running.of("sync")) == 4
    paths = {item.path for item in cluster.requests if item.method == "GET"}
    assert {path for path in paths if path.endswith("/configmaps")} == {
        f"/api/v1/namespaces/{name}/configmaps" for name in ("one", "shared", "templates")
    }
    assert {path for path in paths if path.endswith("/secrets")} == {"/api/v1/secrets"}


@pytest.mark.kopf_embedded_only
def test_1_7_a_namespace_that_is_served_later_has_its_primaries(run, cluster):
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}})
    source = """
import kopf

@kopf.on.reconcile("widgets", watches=[kopf.watch("widgets", map=kopf.same_name(), namespaces=["team-b"])])
def sync(name, namespace, memo, **_):
    memo.calls.append(("sync", namespace))
"""
    running = run(source=source, namespaces=["team-*"])
    widget = {"apiVersion": "behaviours.example.com/v1", "kind": "Widget", "spec": {}}
    cluster.create({**widget, "metadata": {"name": "w", "namespace": "team-a"}})
    running.until("sync", 1)
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-b"}})
    cluster.create({**widget, "metadata": {"name": "w", "namespace": "team-b"}})
    running.settle()
    assert set(running.of("sync")) == {"team-a", "team-b"}


SEVERAL = """
import kopf

same = kopf.watch("configmaps", map=kopf.same_name())

@kopf.on.reconcile("behaviours.example.com", kopf.EVERYTHING, watches=[same])
def sync(resource, memo, **_):
    memo.calls.append(("sync", resource.plural))
"""


@pytest.mark.kopf_embedded_only
def test_1_12_primaries_of_several_kinds_are_triggered_by_the_same_name(run, make, cluster):
    cluster.apply(GADGETS)
    make("one")
    gadget = {"apiVersion": "behaviours.example.com/v1", "kind": "Gadget", "metadata": {"name": "one"}}
    cluster.create(gadget)
    running = run(source=SEVERAL)
    running.until("sync", 2)
    for count, kind in enumerate(["widgets", "gadgets"], start=3):
        kopf.trigger((kind, "one", cluster.namespace), registry=running.operator.registry)
        running.until("sync", count)
    assert running.of("sync")[2:] == ["widgets", "gadgets"]
    cluster.create(config_map("one"))
    running.until("sync", 6)
    running.settle()
    assert sorted(running.of("sync")[4:]) == ["gadgets", "widgets"]
