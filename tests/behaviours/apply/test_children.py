"""Sections 6.2 to 6.4: the requests, conflicts, rejections. Scenarios 1 to 4, 7, 8, 10."""

import logging

import kopf
import pytest
from kopf import client as errors

from .conftest import PART_OF


def versions(cluster, *objects):
    return [cluster.get(kind, name)["metadata"]["resourceVersion"] for kind, name in objects]


def failure(caught):
    assert isinstance(caught.value, kopf.ApplyFailed)
    (error,) = caught.value.exceptions
    return error


def test_6_6_1_children_that_are_applied_again_do_not_change(apply, cluster, make, deployment, service):
    owner = make()
    applied = apply([deployment(), [service]], owner=owner)
    assert [ref.kind for ref in applied.created] == ["Service", "Deployment.apps"]
    objects = (("deployments", "web"), ("services", "web"))
    before = versions(cluster, *objects)
    again = apply([deployment(), service], owner=owner)
    assert [ref.name for ref in again.unchanged] == ["web", "web"]
    assert (again.created, again.changed) == ([], [])
    apply.restart()
    assert len(apply([deployment(), service], owner=owner).unchanged) == 2
    assert versions(cluster, *objects) == before


@pytest.mark.kopf_embedded_only
def test_6_3_children_that_are_not_cached_are_applied_each_time(apply, cluster, make, config_map):
    owner = make()
    path = f"/api/v1/namespaces/{cluster.namespace}/configmaps/one"
    for expected in (["GET", "PATCH"], ["PATCH"], ["PATCH"]):
        cluster.clear_requests()
        apply(config_map(), owner=owner)
        assert apply.requests() == [f"{method} {path}" for method in expected]


def test_6_6_2_normalised_values_cause_no_changes(apply, cluster, make, deployment):
    owner = make()
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "0.5Gi"}}},
    }
    stateful = {**deployment("db"), "kind": "StatefulSet"}
    stateful["spec"] = {**stateful["spec"], "serviceName": "db", "volumeClaimTemplates": [claim]}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "key"},
        "stringData": {"password": "secret"},
    }
    children = [deployment(), stateful, secret]
    apply(children, owner=owner)
    objects = (("deployments", "web"), ("statefulsets", "db"), ("secrets", "key"))
    before = versions(cluster, *objects)
    for _ in range(10):
        if cluster.kind == "embedded":
            cluster.advance(1)  # fields of managers have times in seconds
        assert len(apply(children, owner=owner).unchanged) == 3
    assert versions(cluster, *objects) == before


def test_6_6_3_yielded_fields_stay_as_their_manager_sets_them(apply, cluster, make, deployment):
    owner = make()
    apply(deployment(replicas=2), owner=owner, conflict="yield")
    cluster.api.using(manager="autoscaler").scale("deployments", "web", 5)
    for number in range(10):
        desired = deployment(replicas=2, image=f"web:{number // 4}")
        applied = apply(desired, owner=owner, conflict="yield")
        assert [ref.name for ref in applied.yielded] == ["web"]
        body = applied.objects["Deployment", "web"]
        assert body.spec["replicas"] == 5
        assert body.spec["template"]["spec"]["containers"][0]["image"] == f"web:{number // 4}"
    apply.restart()
    assert apply(desired, owner=owner, yields=["spec.replicas"]).yielded
    assert cluster.get("deployments", "web")["spec"]["replicas"] == 5


def test_6_4_only_the_given_fields_are_yielded(apply, cluster, make, config_map):
    owner = make()
    apply(config_map(x="1", y="1"), owner=owner)
    cluster.api.using(manager="other").patch("configmaps", "one", {"data": {"x": "2", "y": "2"}})
    with pytest.raises(kopf.ApplyFailed) as caught:
        apply(config_map(x="1", y="1"), owner=owner, yields=["data.x"])
    error = failure(caught)
    assert isinstance(error, errors.ApplyConflict)
    assert {(conflict.manager, conflict.field) for conflict in error.managers} == {
        ("other", ".data.x"),
        ("other", ".data.y"),
    }
    applied = apply(config_map(x="1", y="1", z="1"), owner=owner, yields=[("data", "x"), "data.y"])
    assert applied.objects["ConfigMap", "one"]["data"] == {"x": "2", "y": "2", "z": "1"}


def test_6_4_a_field_is_applied_again_when_no_other_manager_owns_it(apply, cluster, make, config_map):
    owner = make()
    apply(config_map(x="1"), owner=owner)
    theirs = cluster.api.using(manager="other")
    foreign = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}
    theirs.apply({**foreign, "data": {"x": "2"}}, force=True)
    applied = apply(config_map(x="1"), owner=owner, conflict="yield")
    assert applied.objects["ConfigMap", "one"]["data"] == {"x": "2"}
    theirs.apply(foreign)
    applied = apply(config_map(x="1"), owner=owner, conflict="yield")
    assert applied.yielded == []
    assert applied.objects["ConfigMap", "one"]["data"] == {"x": "1"}


def test_6_6_4_changes_of_owned_fields_are_reverted_and_others_stay(apply, cluster, make, config_map, caplog):
    owner = make()
    apply(config_map(), owner=owner)
    cluster.api.using(manager="other").patch("configmaps", "one", {"data": {"x": "2", "y": "3"}})
    with caplog.at_level(logging.INFO):
        applied = apply(config_map(), owner=owner, conflict="force")
    assert applied.objects["ConfigMap", "one"]["data"] == {"x": "1", "y": "3"}
    assert [ref.name for ref in applied.changed] == ["one"]
    assert '.data.x of "other"' in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO):
        assert apply(config_map(), owner=owner, conflict="force").unchanged
    assert "took over" not in caplog.text


def test_6_6_4_conflicts_fail_by_default(apply, cluster, make, config_map):
    owner = make()
    apply(config_map(), owner=owner)
    cluster.api.using(manager="other").patch("configmaps", "one", {"data": {"x": "2"}})
    with pytest.raises(kopf.ApplyFailed, match="one") as caught:
        apply([config_map(), config_map("two")], owner=owner)
    assert isinstance(failure(caught), errors.ApplyConflict)
    assert [ref.name for ref in caught.value.applied.created] == ["two"]


@pytest.mark.parametrize("conflict", ["fail", "force", "yield"])
def test_6_6_7_objects_of_other_owners_are_not_touched(apply, cluster, make, config_map, conflict):
    apply(config_map(), owner=make("one"))
    before = cluster.get("configmaps", "one")
    other = make("two")
    for _ in range(2):
        with pytest.raises(kopf.ApplyFailed) as caught:
            apply(config_map(x="2"), owner=other, conflict=conflict)
        error = failure(caught)
        assert isinstance(error, kopf.OwnedByAnother)
        assert "Widget one" in str(error)
        apply.restart()
    assert cluster.get("configmaps", "one") == before


def test_6_6_7_an_object_that_another_manager_created_for_its_owner_is_not_touched(apply, cluster, make):
    foreign = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"x": "1"}}
    kopf.adopt(foreign, owner=kopf.Body(make("other")))
    cluster.create(foreign)
    with pytest.raises(kopf.ApplyFailed) as caught:
        apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}, owner=make())
    assert isinstance(failure(caught), kopf.OwnedByAnother)


def test_6_4_a_shared_object_stays_with_its_owner(apply, cluster, make, config_map):
    first, second = make("first"), make("second")
    apply(config_map(), owner=first)
    applied = apply(config_map(x="2"), owner=second, share=True)
    body = applied.objects["ConfigMap", "one"]
    assert body["data"] == {"x": "2"}
    assert [ref["uid"] for ref in body.metadata["ownerReferences"]] == [first["metadata"]["uid"]]
    apply.restart()
    assert body.metadata.labels[PART_OF] == cluster.get("configmaps", "one")["metadata"]["labels"][PART_OF]
    assert apply(config_map(x="2"), owner=first).unchanged


def test_6_4_a_shared_object_stays_with_its_owner_at_each_apply(apply, make, config_map):
    first, second = make("first"), make("second")
    apply(config_map(), owner=first)
    for value in ("2", "3"):
        applied = apply(config_map(x=value), owner=second, share=True)
        body = applied.objects["ConfigMap", "one"]
        assert body["data"] == {"x": value}
        assert [ref["uid"] for ref in body.metadata["ownerReferences"]] == [first["metadata"]["uid"]]
    with pytest.raises(kopf.ApplyFailed) as caught:
        apply(config_map(x="3"), owner=second)
    assert isinstance(failure(caught), kopf.OwnedByAnother)
    assert apply(config_map(x="3"), owner=first).unchanged


def test_6_6_8_the_fields_of_former_managers_can_be_removed(apply, cluster, make, config_map):
    kubectl = cluster.api.using(manager="kubectl-client-side-apply")
    kubectl.create(config_map(x="1", y="1"))
    owner = make()
    taken = {"owner": owner, "takeover": ["kubectl-client-side-apply"]}
    applied = apply(config_map(x="1", y="1"), **taken)
    managers = applied.objects["ConfigMap", "one"].metadata["managedFields"]
    assert [entry["manager"] for entry in managers] == ["kopf-widgets.behaviours.example.com"]
    applied = apply(config_map(x="1"), **taken)
    assert applied.objects["ConfigMap", "one"]["data"] == {"x": "1"}


def job(image):
    container = {"name": "run", "image": image}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "run"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


def test_6_6_10_immutable_fields_fail_or_recreate_the_object(apply, cluster, make):
    owner = make()
    uid = apply(job("run:1"), owner=owner).created[0].uid
    with pytest.raises(kopf.ApplyFailed, match="immutable") as caught:
        apply(job("run:2"), owner=owner)
    error = failure(caught)
    assert isinstance(error, errors.Invalid)
    assert error.causes[0].field == "spec.template"
    applied = apply(job("run:2"), owner=owner, immutable="recreate")
    assert applied.recreated[0].uid not in (uid, None)
    body = applied.objects["Job", "run"]
    assert body.spec["template"]["spec"]["containers"][0]["image"] == "run:2"
    assert apply(job("run:2"), owner=owner, immutable="recreate").unchanged


def test_6_4_recreated_objects_have_the_fields_that_were_yielded(apply, cluster, make, deployment):
    owner = make()
    apply(deployment(replicas=2), owner=owner, conflict="yield")
    cluster.api.using(manager="autoscaler").scale("deployments", "web", 5)
    assert apply(deployment(replicas=2), owner=owner, conflict="yield").yielded
    desired = deployment(replicas=2)
    desired["spec"]["selector"] = {"matchLabels": {"app": "new"}}
    desired["spec"]["template"]["metadata"]["labels"] = {"app": "new"}
    applied = apply(desired, owner=owner, conflict="yield", immutable="recreate")
    assert [ref.name for ref in applied.recreated] == ["web"]
    assert applied.yielded == []
    assert applied.objects["Deployment", "web"].spec["replicas"] == 2


def test_6_6_10_immutable_secrets_are_recreated(apply, make):
    def secret(value):
        metadata = {"name": "key"}
        data = {"stringData": {"password": value}, "immutable": True}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, **data}

    owner = make()
    uid = apply(secret("planted-1"), owner=owner).created[0].uid
    with pytest.raises(kopf.ApplyFailed) as caught:
        apply(secret("planted-2"), owner=owner)
    error = failure(caught)
    assert isinstance(error, errors.Invalid)
    assert "planted" not in str(error) + repr(error.causes)
    applied = apply(secret("planted-2"), owner=owner, immutable="recreate")
    assert applied.recreated[0].uid not in (uid, None)


def test_6_4_objects_that_are_being_deleted_are_waited_for(apply, cluster, make, config_map):
    stuck = config_map()
    stuck["metadata"]["finalizers"] = ["example.com/stuck"]
    cluster.create(stuck)
    cluster.api.delete("configmaps", "one")
    owner = make()
    with pytest.raises(kopf.Requeue, match="one is being deleted") as requeue:
        apply([config_map(), config_map("two")], owner=owner)
    assert requeue.value.after == 1
    assert cluster.get("configmaps", "two")
    cluster.api.patch("configmaps", "one", {"metadata": {"finalizers": None}})
    assert [ref.name for ref in apply(config_map(), owner=owner).created] == ["one"]


def test_6_2_children_get_owner_references_and_labels(apply, cluster, make, config_map):
    owner = make()
    given = config_map()
    given["metadata"] |= {"uid": "x", "resourceVersion": "1", "creationTimestamp": None, "managedFields": []}
    given["status"] = {"x": 1}
    body = apply(given, owner=owner, name="files").objects["ConfigMap", "one"]
    assert body.metadata.namespace == cluster.namespace
    (reference,) = body.metadata["ownerReferences"]
    assert reference == {
        "apiVersion": "behaviours.example.com/v1",
        "kind": "Widget",
        "name": "one",
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    assert body.metadata.labels["kopf.dev/applyset"] == "files"
    assert body.metadata.labels[PART_OF].startswith("applyset-")
    assert given["status"] == {"x": 1}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"metadata": {"generateName": "x-"}}, "generateName"),
        ({"metadata": {}}, "no metadata.name"),
        ({"kind": None}, "kind"),
        ({"metadata": {"name": "one", "namespace": "elsewhere"}}, "prune=True"),
        ({"kind": "Namespace", "metadata": {"name": "x"}}, "prune=True"),
    ],
)
def test_6_2_wrong_children_are_rejected_before_anything_is_sent(
    apply, cluster, make, config_map, change, text
):
    wrong = {**config_map(), **change}
    with pytest.raises(ValueError, match=text):
        apply([config_map("right"), wrong], owner=make())
    assert cluster.api.find("configmaps", "right") is None


def test_6_2_duplicates_and_wrong_options_are_rejected(apply, make, config_map):
    owner = make()
    with pytest.raises(ValueError, match="twice"):
        apply([config_map(), [config_map()]], owner=owner)
    with pytest.raises(ValueError, match="name"):
        apply(config_map(), owner=owner, name="x", prune=True)
    with pytest.raises(ValueError, match="conflict"):
        apply(config_map(), owner=owner, conflict="ignore")
    with pytest.raises(ValueError, match="immutable"):
        apply(config_map(), owner=owner, immutable="replace")
    with pytest.raises(TypeError, match="list"):
        apply(config_map(), owner=owner, yields="spec.x")
    with pytest.raises(LookupError, match="Owner"):
        apply(config_map())
    with pytest.raises(TypeError, match="mapping"):
        apply(["one"], owner=owner)


def test_6_2_errors_of_a_rank_do_not_stop_it_but_the_next_one(apply, cluster, make, config_map, deployment):
    invalid = config_map("INVALID")
    with pytest.raises(kopf.ApplyFailed) as caught:
        apply([deployment(), invalid, config_map()], owner=make())
    error = failure(caught)
    assert isinstance(error, errors.Invalid)
    assert "INVALID" in str(error)
    assert [ref.name for ref in caught.value.applied.created] == ["one"]
    assert not caught.value.applied.ready
    assert cluster.api.find("deployments", "web") is None


def test_6_1_dry_runs_store_nothing(apply, cluster, make, config_map):
    owner = make()
    assert [ref.name for ref in apply(config_map(), owner=owner, dry_run=True).created] == ["one"]
    assert cluster.api.find("configmaps", "one") is None
    apply(config_map(), owner=owner)
    assert apply(config_map(), owner=owner, dry_run=True).unchanged
    changed = apply(config_map(x="2"), owner=owner, dry_run=True)
    assert changed.changed
    assert changed.objects["ConfigMap", "one"]["data"] == {"x": "2"}
    assert cluster.get("configmaps", "one")["data"] == {"x": "1"}


def test_6_2_children_wait_for_their_crd(apply, cluster, make, thing_crd):
    crd, thing = thing_crd
    for order in (True, False):
        applied = apply([thing, crd], owner=make(f"w{order}".lower()), prune=True, order=order)
        assert len(applied.created) == 2
        apply([], owner=cluster.get("widgets", f"w{order}".lower()), prune=True)
        cluster.api.wait_for("crd", crd["metadata"]["name"], lambda body: body is None, timeout=60)


def test_6_1_the_result_is_ready_if_all_children_are(apply, make, config_map, deployment):
    owner = make()
    assert apply(config_map(), owner=owner).ready
    assert not apply([config_map(), deployment()], owner=owner).ready
