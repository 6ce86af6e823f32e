"""Section 3: the verbs of the API client, with all sorts of kinds."""

import json
import re

import kopf
import pytest
from kopf import client as errors

WIDGET = {"apiVersion": "behaviours.example.com/v1", "kind": "Widget", "metadata": {"name": "one"}}
SCALED = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: fleets.behaviours.example.com}
spec:
  group: behaviours.example.com
  scope: Namespaced
  names: {plural: fleets, singular: fleet, kind: Fleet, listKind: FleetList}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}, scale: {specReplicasPath: .spec.n, statusReplicasPath: .status.n}}
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


def test_3_10_1_objects_are_created_read_changed_and_deleted(client, config_map):
    created = client.create(config_map)
    assert isinstance(created, kopf.Body)
    assert created.metadata.uid and created["data"] == {"x": "1"}
    with pytest.raises(errors.AlreadyExists) as failure:
        client.create(config_map)
    assert (failure.value.code, failure.value.uncertain) == (409, False)
    assert client.get("configmaps", "one")["data"] == client.find("cm", "one")["data"] == {"x": "1"}
    assert client.patch("cm", "one", {"data": {"y": "2"}})["data"] == {"x": "1", "y": "2"}
    operations = [{"op": "remove", "path": "/data/x"}]
    assert client.patch("cm", "one", operations)["data"] == {"y": "2"}
    assert client.patch("cm", "one", {"data": {"z": "3"}}, strategic=True)["data"] == {"y": "2", "z": "3"}
    assert client.edit("cm", "one", lambda body: body["data"].update(y="4"))["data"] == {"y": "4", "z": "3"}
    replaced = client.replace({**client.get("cm", "one"), "data": {"x": "5"}})
    assert replaced["data"] == {"x": "5"}
    with pytest.raises(errors.Conflict):
        client.replace(created)
    with pytest.raises(errors.Conflict):
        client.patch("cm", "one", {"data": {"x": "6"}}, version=created.metadata["resourceVersion"])
    assert client.delete("cm", "one", uid=created.metadata.uid) is None
    assert client.find("cm", "one") is None
    assert client.delete("cm", "one", missing_ok=True) is None
    with pytest.raises(errors.NotFound, match=r"cannot delete configmaps \S+/one: .* \(404 NotFound\)"):
        client.delete("cm", "one")


def test_3_10_1_the_status_is_a_subresource(client):
    client.create(WIDGET)
    client.patch("widgets", "one", {"status": {"done": True}}, subresource="status")
    assert client.get("widgets", "one").status == {"done": True}
    body = client.edit("widgets", "one", lambda body: body["status"].update(done=False), subresource="status")
    assert body.status == {"done": False}
    assert client.get("widgets", "one", metadata_only=True).get("status") is None
    assert client.get("widgets", "one", metadata_only=True)["kind"] == "Widget"


def test_3_10_1_objects_with_finalizers_are_returned_by_their_deletion(client):
    client.create({**WIDGET, "metadata": {"name": "one", "finalizers": ["example.com/x"]}})
    left = client.delete("widgets", "one", propagation="background")
    assert left is not None and left.metadata.deletion_timestamp
    client.patch("widgets", "one", {"metadata": {"finalizers": None}})
    assert client.find("widgets", "one") is None


def test_3_10_1_cluster_scoped_kinds_have_no_namespace(client, cluster):
    assert client.get("namespaces", cluster.namespace).metadata.namespace is None
    with pytest.raises(ValueError, match="cluster-scoped"):
        client.get("namespaces", cluster.namespace, "other")


def test_3_10_1_an_edit_without_a_difference_sends_nothing(client, config_map):
    client.create(config_map)
    version = client.get("cm", "one").metadata["resourceVersion"]
    assert client.edit("cm", "one", lambda body: None).metadata["resourceVersion"] == version


def test_3_10_1_an_edit_is_repeated_when_the_object_has_changed_meanwhile(client, cluster, config_map):
    client.create(config_map)
    seen = []

    def change(body):
        seen.append(body["data"]["x"])
        if len(seen) == 1:
            cluster.patch("configmaps", "one", {"data": {"x": "other"}})
        body["data"]["y"] = "mine"

    assert client.edit("cm", "one", change)["data"] == {"x": "other", "y": "mine"}
    assert seen == ["1", "other"]


@pytest.mark.kopf_embedded_only
def test_3_10_1_both_clients_send_the_same_requests(callers, cluster, config_map):
    logs = []
    for client in callers:
        cluster.clear_requests()
        client.create(config_map)
        client.get("cm", "one")
        client.find("cm", "other", metadata_only=True)
        client.apply(config_map)
        client.list("cm", labels={"a": "b"}, most=3)
        client.patch("cm", "one", {"data": {"y": "2"}})
        client.patch("cm", "one", [{"op": "remove", "path": "/data/y"}])
        client.patch("cm", "one", {"data": {"z": "3"}}, strategic=True)
        client.edit("cm", "one", _without_z)
        client.replace(config_map)
        client.wait_for("cm", "one", errors.exists, timeout=30)
        client.delete_all("cm", labels="!a", fields={"metadata.name": "other"})
        client.delete("cm", "one", grace=0)
        with pytest.raises(errors.NotFound):
            client.scale("deployments", "one", 2)
        with pytest.raises(errors.NotFound):
            client.evict("one", uid="1")
        assert client.allowed("get", "cm")
        client.request("GET", f"/api/v1/namespaces/{cluster.namespace}", params={"a": "b"})
        own = [it for it in cluster.requests if it.agent == "kopf-test-client" and it.path not in DISCOVERY]
        # An edit tests the version that it has read, and a watch begins with the version of its list.
        logs.append([(it.method, it.path, _unversioned(it), it.content_type) for it in own])
    assert logs[0] == logs[1]
    methods = [method for method, *_ in logs[0]]
    assert {"GET", "POST", "PUT", "PATCH", "DELETE"} == set(methods)
    assert len(methods) >= 18


DISCOVERY = {"/api", "/apis", "/api/v1", "/apis/apps/v1", "/apis/authorization.k8s.io/v1", "/version"}


def _without_z(body):
    del body["data"]["z"]


def _unversioned(request):
    """The query and the body, without resource versions."""
    query = re.sub(r"resourceVersion=[^&]*", "", request.query)
    return query, re.sub(r'("value":|"resourceVersion":) ?"\d+"', r"\1", json.dumps(request.json))


@pytest.mark.parametrize(
    "kind",
    [
        "cm",
        "ConfigMap",
        "configmaps.v1",
        "v1/configmaps",
        ("", "v1", "configmaps"),
        ("v1", "ConfigMap"),
        {"apiVersion": "v1", "kind": "ConfigMap"},
        kopf.Resource("", "v1", "configmaps"),
    ],
)
def test_3_2_kinds_have_many_names(cluster, config_map, kind):
    cluster.api.create(config_map)
    assert cluster.api.get(kind, "one")["kind"] == "ConfigMap"


def test_3_2_unknown_kinds_are_errors_until_they_are_served(client, cluster):
    # The tests of one process may share a cluster.
    plural = f"{client.flavour}fleets"
    with pytest.raises(errors.UnknownKind, match=plural):
        client.list(plural)
    cluster.apply(
        SCALED.replace("fleet", f"{client.flavour}fleet").replace("Fleet", f"Fleet{client.flavour}")
    )
    assert client.list(plural) == []
    assert client.discover(plural).subresources == {"status", "scale"}


def test_3_10_3_apply_conflicts_name_the_managers_and_the_fields(client):
    widget = {**WIDGET, "spec": {"x": 1}}
    client.apply(widget)
    client.apply({**WIDGET, "spec": {"x": 2}}, manager="other", force=True)
    with pytest.raises(errors.ApplyConflict) as failure:
        client.apply(widget)
    assert [tuple(conflict) for conflict in failure.value.managers] == [("other", ".spec.x", "")]
    assert client.apply(widget, force=True).spec == {"x": 1}


def test_3_10_4_replicas_are_read_and_set_by_scale(client, cluster):
    cluster.apply(SCALED)
    fleet = {"apiVersion": "behaviours.example.com/v1", "kind": "Fleet", "metadata": {"name": "one"}}
    client.create({**fleet, "spec": {"n": 2}})
    assert client.scale("fleets", "one") == 2
    assert client.scale("fleets", "one", 5) == 5
    assert client.get("fleets", "one").spec["n"] == 5
    client.create(WIDGET)
    with pytest.raises(errors.NotFound, match=r"widgets\.behaviours\.example\.com/scale"):
        client.scale("widgets", "one")


def test_3_10_4_replicas_of_deployments_are_read_and_set_by_scale(client):
    labels = {"app": "one"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": pod}
    client.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "one"}, "spec": spec})
    assert client.scale("deploy", "one") == 2
    assert client.scale("deploy", "one", 0) == 0
    assert client.get("deploy", "one").spec["replicas"] == 0


def test_3_10_11_dry_runs_store_nothing_and_respond_as_usual(client, config_map):
    dry = client.viewed("using", dry_run=True)
    assert dry.create(config_map)["data"] == {"x": "1"}
    assert dry.apply(config_map)["data"] == {"x": "1"}
    assert client.find("cm", "one") is None
    stored = client.create(config_map)
    assert dry.patch("cm", "one", {"data": {"y": "2"}})["data"] == {"x": "1", "y": "2"}
    assert dry.replace({**stored, "data": {}}).get("data", {}) == {}
    assert dry.edit("cm", "one", lambda body: body["data"].update(x="3"))["data"] == {"x": "3"}
    dry.delete("cm", "one")
    dry.delete_all("cm", labels="!absent")
    assert client.get("cm", "one").metadata["resourceVersion"] == stored.metadata["resourceVersion"]


def test_3_10_11_dry_runs_scale_and_evict_nothing(client, cluster):
    dry = client.viewed("using", dry_run=True)
    container = {"name": "c", "image": "i"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "one"},
        "spec": {"containers": [container]},
    }
    client.create(pod)
    dry.evict("one")
    assert client.get("pods", "one").metadata.deletion_timestamp is None
    labels = {"app": "one"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    client.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "one"}, "spec": spec})
    assert dry.scale("deploy", "one", 3) == 3
    assert client.scale("deploy", "one") == 0


def test_all_selected_objects_are_deleted(client, config_map):
    for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
        client.create({**config_map, "metadata": {"name": name, "labels": {"kind": label}}})
    client.delete_all("cm", labels={"kind": "x"})
    assert [body.metadata.name for body in client.list("cm", labels="kind")] == ["c"]


def test_any_request_can_be_sent(client, cluster):
    answer = client.request("GET", f"/api/v1/namespaces/{cluster.namespace}")
    assert answer.status == 200 and answer.json["metadata"]["name"] == cluster.namespace
    assert answer.headers["content-type"].startswith("application/json")
    with pytest.raises(errors.NotFound, match="cannot GET /api/v1/nothing"):
        client.request("GET", "/api/v1/nothing", params={"a": "b"})
    client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}})
    path = f"/api/v1/namespaces/{cluster.namespace}/configmaps/one"
    json_patch = "application/json-patch+json"
    for body in ([], b"[]", bytearray(b"[]"), memoryview(b"[]")):
        assert client.request("PATCH", path, body=body, content_type=json_patch).status == 200
    assert client.server_version()["major"] == "1"
    assert any(resource.plural == "widgets" for resource in client.resources())
    assert client.allowed("create", "pods", namespace="*") is True


def test_invalid_objects_are_rejected_with_the_fields(client, config_map):
    with pytest.raises(errors.Invalid) as failure:
        client.create({**config_map, "metadata": {"name": "Not A Name"}})
    assert [cause.field for cause in failure.value.causes] == ["metadata.name"]
    assert isinstance(failure.value, kopf.ApiError)


def test_a_blocking_client_is_rejected_in_an_event_loop(cluster):
    import asyncio

    async def block():
        cluster.api.find("cm", "one")

    with pytest.raises(RuntimeError, match=r"kopf\.connect"):
        asyncio.run(block())
