"""Section 6 in handlers: the default owner and client, marks of the owner, its deletion. Scenario 9."""

import threading

import pytest

HEAD = """
import kopf

def config_map(name, namespace=None, **data):
    metadata = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data or {"x": "1"}}
"""

BOTH = (
    HEAD
    + """
@kopf.on.create("widgets")
async def created(name, memo, **_):
    applied = await kopf.apply(config_map(f"{name}-async"))
    memo.calls.append(("created", [ref.name for ref in applied.created]))

@kopf.on.create("widgets")
def created_in_a_thread(name, memo, **_):
    applied = kopf.apply_sync([config_map(f"{name}-sync")], name="files")
    memo.calls.append(("thread", [ref.name for ref in applied.created]))

@kopf.on.create("widgets")
async def with_the_client(name, memo, api, **_):
    applied = await kopf.apply(config_map(f"{name}-api"), api=api)
    memo.calls.append(("api", [ref.name for ref in applied.created]))
"""
)


def test_6_1_the_owner_and_the_client_are_those_of_the_handler(run, make, cluster):
    running = run(source=BOTH)
    owner = make()
    for handler, name in (("created", "one-async"), ("thread", "one-sync"), ("api", "one-api")):
        running.until(handler)
        assert running.of(handler) == [[name]]
        (reference,) = cluster.get("configmaps", name)["metadata"]["ownerReferences"]
        assert reference["uid"] == owner["metadata"]["uid"]
    running.stop()


PRUNING = (
    HEAD
    + """
@kopf.on.create("widgets")
@kopf.on.update("widgets")
@kopf.on.resume("widgets")
async def changed(spec, memo, diff, reason, **_):
    applied = await kopf.apply([config_map(name) for name in spec.get("names", ())], prune=True)
    memo.calls.append(("changed", str(reason), sorted(ref.name for ref in applied.pruned)))
"""
)


def test_6_5_the_marks_of_the_owner_are_not_a_change(run, make, cluster, handled):
    running = run(source=PRUNING)
    make(spec={"names": ["a", "b"]})
    handled()
    running.settle()
    assert running.of("changed") == [("create", [])]
    cluster.api.patch("widgets", "one", {"spec": {"names": ["a"]}})
    running.until("changed", 2)
    running.settle()
    assert running.of("changed") == [("create", []), ("update", ["b"])]
    running.stop()
    last = cluster.get("widgets", "one")["metadata"]["annotations"]
    assert "applyset" not in last["kopf.zalando.org/last-handled-configuration"]

    again = run(source=PRUNING)
    again.until("changed")
    again.settle()
    assert again.of("changed") == [("resume", [])]
    again.stop()


TWICE = (
    HEAD
    + """
@kopf.on.create("widgets")
async def created(name, memo, **_):
    await kopf.apply(config_map("a"), prune=True, dry_run=True)
    await kopf.apply(config_map("a"), prune=True)
    try:
        await kopf.apply(config_map("b"), prune=True)
    except ValueError as e:
        memo.calls.append(("created", str(e)))
"""
)


def test_6_5_a_second_pruning_call_is_rejected(run, make, cluster):
    running = run(source=TWICE)
    make()
    running.until("created")
    assert "with one call" in running.of("created")[0]
    assert cluster.get("configmaps", "a")
    assert cluster.api.find("configmaps", "b") is None
    running.stop()


FAR = (
    HEAD
    + """
@kopf.on.create("widgets")
async def created(spec, name, namespace, memo, **_):
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    role["metadata"] = {"name": spec["role"]}
    await kopf.apply([config_map("near"), config_map("far", spec["far"]), role], prune=True)
    memo.calls.append(("created", 1))

@kopf.on.delete("widgets")
async def deleted(spec, api, memo, **_):
    present = [await api.find("configmaps", "far", spec["far"]), await api.find("clusterroles", spec["role"])]
    memo.calls.append(("deleted", None not in present))
"""
)


def test_6_6_9_marked_children_are_deleted_before_their_owner(run, make, cluster, other_namespace):
    running = run(source=FAR)
    role = f"{cluster.namespace}-role"
    owner = make(spec={"far": other_namespace, "role": role})
    running.until("created")
    assert cluster.get("clusterroles", role)["metadata"]["annotations"] == {
        "kit.kopf.zalando.org/owner": owner["metadata"]["uid"]
    }
    # As long as one of the children exists, so does the owner.
    api = cluster.api
    api.patch("configmaps", "far", {"metadata": {"finalizers": ["example.com/stuck"]}}, other_namespace)
    api.delete("widgets", "one")
    api.wait_for("clusterroles", role, lambda body: body is None, timeout=60)
    assert running.of("deleted") == [True]
    assert "kopf.dev/children" in cluster.get("widgets", "one")["metadata"]["finalizers"]
    api.patch("configmaps", "far", {"metadata": {"finalizers": None}}, other_namespace)
    api.wait_for("widgets", "one", lambda body: body is None, timeout=60)
    assert api.find("configmaps", "far", other_namespace) is None
    api.wait_for("configmaps", "near", lambda body: body is None, timeout=60)
    running.stop()


@pytest.mark.kopf_embedded_only
def test_6_6_9_the_deletion_continues_after_a_restart(run, make, cluster, other_namespace):
    running = run(source=FAR)
    role = f"{cluster.namespace}-role"
    make(spec={"far": other_namespace, "role": role})
    running.until("created")
    cluster.inject("code", 403, verb="delete", resource="clusterroles")
    cluster.api.delete("widgets", "one")
    cluster.api.wait_for("configmaps", "far", lambda body: body is None, other_namespace, timeout=60)
    running.stop()
    cluster.clear_faults()
    again = run(source=FAR)
    cluster.api.wait_for("widgets", "one", lambda body: body is None, timeout=60)
    assert cluster.api.find("clusterroles", role) is None
    again.stop()


RECONCILED = (
    HEAD
    + """
@kopf.on.delete("widgets")
def deleted(memo, **_):
    if not memo.handler_may_end.is_set():
        raise kopf.TemporaryError("not yet", delay=0.1)
    memo.calls.append(("deleted", None))

@kopf.on.reconcile("widgets", deletion=True, finalizer="example.com/reconciler")
async def sync(spec, deleting, memo, **_):
    if not deleting:
        await kopf.apply(config_map("far", spec["far"]), prune=True)
        memo.calls.append(("sync", None))
    elif not memo.reconciler_may_end.is_set():
        raise kopf.TemporaryError("not yet", delay=0.1)
    else:
        memo.calls.append(("deleting", None))
"""
)


def test_6_5_marked_children_stay_until_handlers_and_reconcilers_have_released_the_owner(
    run, make, cluster, other_namespace
):
    ends = {"handler_may_end": threading.Event(), "reconciler_may_end": threading.Event()}
    running = run(source=RECONCILED, share=ends)
    make(spec={"far": other_namespace})
    running.until("sync")
    api = cluster.api
    finalizers = {"kopf.dev/children", "example.com/reconciler"}
    api.wait_for("widgets", "one", lambda it: len(it["metadata"].get("finalizers", [])) == 3, timeout=60)
    api.delete("widgets", "one")
    ends["handler_may_end"].set()
    running.until("deleted")
    remaining = lambda it: set(it["metadata"]["finalizers"]) == finalizers  # noqa: E731
    api.wait_for("widgets", "one", remaining, timeout=60)
    assert api.find("configmaps", "far", other_namespace) is not None
    ends["reconciler_may_end"].set()
    api.wait_for("widgets", "one", lambda it: it is None, timeout=60)
    assert running.of("deleting") == [None]
    assert api.find("configmaps", "far", other_namespace) is None
    running.stop()


OWNING = (
    HEAD
    + """
@kopf.on.reconcile("widgets", owns=["configmaps"])
async def sync(name, spec, memo, **_):
    applied = await kopf.apply(config_map(name, x=str(spec["size"])), conflict="force")
    [body] = applied.objects.values()
    memo.calls.append(("sync", len(applied.unchanged), body["data"]["x"], body.metadata.name, applied.ready))
"""
)


@pytest.mark.kopf_embedded_only
def test_6_3_owned_children_whose_version_is_known_are_not_applied_again(run, make, cluster):
    running = run(source=OWNING)
    make()
    running.settle()
    # The creation of the child is a trigger; it is as the first call has left it.
    assert running.of("sync") == [(0, "1", "one", True), (1, "1", "one", True)]
    cluster.clear_requests()
    cluster.patch("widgets", "one", {"metadata": {"labels": {"a": "b"}}})
    running.settle()
    assert running.of("sync")[2:] == [(1, "1", "one", True)]
    assert not [it.path for it in cluster.requests if it.path.endswith("/configmaps/one")]
    # Another client changes the child: its field is reverted by the call that this triggers.
    cluster.patch("configmaps", "one", {"data": {"x": "other"}})
    running.settle()
    assert len(running.of("sync")) > 3
    assert [it.method for it in cluster.requests if it.path.endswith("/configmaps/one")] == 2 * ["PATCH"]
    assert cluster.get("configmaps", "one")["data"] == {"x": "1"}
    cluster.delete("configmaps", "one")
    running.settle()
    assert cluster.get("configmaps", "one")["data"] == {"x": "1"}
    cluster.patch("widgets", "one", {"spec": {"size": 2}})
    running.settle()
    assert cluster.get("configmaps", "one")["data"] == {"x": "2"}
    running.stop()


NORMALISED = (
    HEAD
    + """
labels = {"app": "web"}
container = {"name": "web", "image": "web:1", "env": [{"name": "EMPTY", "value": ""}]}
container["readinessProbe"] = {"initialDelaySeconds": 0, "tcpSocket": {"port": 80}}
template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
claim["spec"]["resources"] = {"requests": {"storage": "0.5Gi"}}
workload = {"selector": {"matchLabels": labels}, "template": template}
ports = [{"port": 80}]
CHILDREN = [
    {"apiVersion": "apps/v1", "kind": "Deployment", "spec": workload},
    {"apiVersion": "apps/v1", "kind": "StatefulSet",
     "spec": {**workload, "serviceName": "web", "volumeClaimTemplates": [claim]}},
    {"apiVersion": "v1", "kind": "Service", "spec": {"selector": labels, "ports": ports}},
    {"apiVersion": "v1", "kind": "Secret", "stringData": {"password": "secret"}},
]

@kopf.on.reconcile("widgets", owns=["deployments", "statefulsets", "services", "secrets"])
async def sync(memo, children, **_):
    applied = await kopf.apply([{**child, "metadata": {"name": "web"}} for child in CHILDREN])
    memo.calls.append(("sync", len(applied.created), len(applied.changed), len(applied.unchanged)))
"""
)
KINDS = ("deployments", "statefulsets", "services", "secrets")


@pytest.mark.kopf_embedded_only
def test_6_6_1_6_6_2_children_are_applied_once_and_once_after_a_restart(run, make, cluster):
    def applied():
        """The requests for the children themselves, since the last call."""
        found = [
            it.method for it in cluster.requests if it.path.endswith(tuple(f"/{it}/web" for it in KINDS))
        ]
        cluster.clear_requests()
        return found

    def versions():
        return [cluster.get(kind, "web")["metadata"]["resourceVersion"] for kind in KINDS]

    running = run(source=NORMALISED)
    make()
    running.settle()
    before, calls = versions(), running.of("sync")
    assert calls[0] == (4, 0, 0) and set(calls[1:]) == {(0, 0, 4)}, "the values of the server are no changes"
    applied()
    for number in range(10):
        cluster.advance(1)  # fields of managers have times in seconds
        cluster.patch("widgets", "one", {"metadata": {"labels": {"n": str(number)}}})
        running.until("sync", len(calls) + number + 1)
    running.settle()
    assert running.of("sync")[len(calls) :] == [(0, 0, 4)] * 10
    assert (applied(), versions()) == ([], before)
    running.stop()
    again = run(source=NORMALISED)
    again.settle()
    assert again.of("sync") == [(0, 0, 4)]
    assert (applied(), versions()) == (["PATCH"] * 4, before)
    again.stop()


LATE = (
    HEAD
    + """
@kopf.on.event("widgets")
def changed(type, memo, **_):
    if type == "DELETED":
        memo.deleted.set()

@kopf.on.reconcile("widgets")
def sync(name, memo, **_):
    memo.calls.append(("started", name))
    assert memo.deleted.wait(30)
    try:
        kopf.apply_sync(config_map(name))
    except LookupError as error:
        memo.calls.append(("failed", str(error)))
"""
)


@pytest.mark.kopf_embedded_only
def test_6_2_nothing_is_sent_for_an_owner_whose_deletion_was_observed(run, make, cluster):
    running = run(source=LATE, share={"deleted": threading.Event()})
    make("w")
    running.until("started")
    cluster.delete("widgets", "w")
    running.until("failed")
    running.stop()
    (text,) = running.of("failed")
    assert "does not exist any more" in text
    assert not [it.path for it in cluster.requests if it.path.endswith("/configmaps/w")]


RESELECTED = (
    HEAD
    + """
@kopf.on.startup()
def configure(settings, memo, **_):
    if memo.selector == "derived":
        settings.watching.derived_selectors = True
    else:
        settings.watching.label_selectors["widgets"] = "tier=gold"

@kopf.on.event("widgets", labels={"tier": "gold"})
async def seen(type, memo, **_):
    if type != "DELETED":
        await kopf.apply(config_map("child"))
        memo.calls.append(("seen", type))
"""
)


@pytest.mark.parametrize("selector", ["derived", "of the settings"])
def test_6_2_an_owner_that_leaves_the_selector_of_the_watch_is_not_gone(run, make, cluster, selector):
    running = run({"selector": selector}, source=RESELECTED)
    make(labels={"tier": "gold"})
    running.until("seen")
    running.settle()
    calls = len(running.of("seen"))
    cluster.patch("widgets", "one", {"metadata": {"labels": {"tier": "silver"}}})
    running.settle()
    assert len(running.of("seen")) == calls
    cluster.patch("widgets", "one", {"metadata": {"labels": {"tier": "gold"}}})
    running.until("seen", calls + 1)
    running.stop()


UNSELECTED = (
    HEAD
    + """
@kopf.on.startup()
def configure(settings, **_):
    settings.watching.derived_selectors = True

@kopf.on.create("widgets", labels={"tier": "gold"})
async def created(spec, memo, **_):
    await kopf.apply([config_map("far", spec["far"])], prune=True)
    memo.calls.append(("created", 1))
"""
)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_6_6_9_marked_children_are_deleted_before_an_owner_that_the_watch_does_not_select(
    run, make, cluster, other_namespace, is_restarted
):
    running = run(source=UNSELECTED)
    make(spec={"far": other_namespace}, labels={"tier": "gold"})
    running.until("created")
    running.settle()
    cluster.patch("widgets", "one", {"metadata": {"labels": {"tier": "silver"}}})
    running.settle()
    if is_restarted:
        running.stop()
        running = run(source=UNSELECTED)
        running.settle()
    cluster.api.delete("widgets", "one")
    cluster.api.wait_for("widgets", "one", lambda body: body is None, timeout=60)
    assert cluster.api.find("configmaps", "far", other_namespace) is None
    running.stop()
