"""The checks of the uid in patches, on which Kopf relies: in the embedded API server as in a real one."""

import pytest
from kopf.client import Conflict, Invalid

OTHER = "11111111-2222-3333-4444-555555555555"
IMMUTABLE = f'metadata.uid: Invalid value: "{OTHER}": field is immutable'
CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"x": "1"}}
CONTAINER = {"name": "c", "image": "registry.example.com/c"}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "one"},
    "spec": {
        "replicas": 0,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}},
    },
}


@pytest.fixture
def objects(cluster, make):
    """An object of each kind."""
    return {
        "widgets": make(),
        "configmaps": cluster.create(CONFIG),
        "deployments": cluster.create(DEPLOYMENT),
    }


@pytest.mark.parametrize("kind", ["widgets", "configmaps", "deployments"])
def test_the_uid_in_a_merge_patch_must_be_that_of_the_object(cluster, objects, kind):
    labels = {"labels": {"patched": "yes"}}
    with pytest.raises(Invalid) as rejection:
        cluster.api.patch(kind, "one", {"metadata": {"uid": OTHER, **labels}})
    assert IMMUTABLE in str(rejection.value)
    uid = objects[kind]["metadata"]["uid"]
    body = cluster.api.patch(kind, "one", {"metadata": {"uid": uid, **labels}})
    assert body["metadata"]["labels"] == {"patched": "yes"} and body["metadata"]["uid"] == uid


def test_custom_resources_ignore_the_uid_in_a_merge_patch_of_their_status(cluster, objects):
    patch = {"metadata": {"uid": OTHER}, "status": {"x": 1}}
    body = cluster.api.patch("widgets", "one", patch, subresource="status")
    assert body["status"] == {"x": 1}
    assert body["metadata"]["uid"] == objects["widgets"]["metadata"]["uid"]


def test_built_in_kinds_check_the_uid_in_a_merge_patch_of_their_status(cluster, objects):
    patch = {"metadata": {"uid": OTHER}, "status": {"observedGeneration": 1}}
    with pytest.raises(Invalid) as rejection:
        cluster.api.patch("deployments", "one", patch, subresource="status")
    assert IMMUTABLE in str(rejection.value)


@pytest.mark.parametrize("subresource", [None, "status"])
def test_a_json_patch_can_test_the_uid(cluster, objects, subresource):
    change = {"op": "add", "path": "/status", "value": {"x": 1}}
    for uid, is_applied in [(OTHER, False), (objects["widgets"]["metadata"]["uid"], True)]:
        operations = [{"op": "test", "path": "/metadata/uid", "value": uid}, change]
        if is_applied:
            cluster.api.patch("widgets", "one", operations, subresource=subresource)
        else:
            with pytest.raises(Invalid):
                cluster.api.patch("widgets", "one", operations, subresource=subresource)


def test_the_version_in_a_merge_patch_of_a_status_must_be_the_latest_one(cluster, objects):
    version = objects["widgets"]["metadata"]["resourceVersion"]
    cluster.api.patch("widgets", "one", {"metadata": {"labels": {"changed": "yes"}}})
    patch = {"metadata": {"resourceVersion": version}, "status": {"x": 1}}
    with pytest.raises(Conflict):
        cluster.api.patch("widgets", "one", patch, subresource="status")
    assert "status" not in cluster.get("widgets", "one")


def test_operations_replace_and_remove_fields_whether_they_exist_or_not(cluster, objects):
    cluster.api.patch("widgets", "one", {"status": {"x": 1, "y": 1}}, subresource="status")
    operations = [
        {"op": "test", "path": "/metadata/uid", "value": objects["widgets"]["metadata"]["uid"]},
        {"op": "add", "path": "/status/x", "value": 2},
        {"op": "add", "path": "/status/new~1one", "value": [1]},
    ]
    for key in ("y", "missing"):
        path = f"/status/{key}"
        operations += [{"op": "add", "path": path, "value": None}, {"op": "remove", "path": path}]
    body = cluster.api.patch("widgets", "one", operations, subresource="status")
    assert body["status"] == {"x": 2, "new/one": [1]}


def test_operations_on_a_field_of_a_missing_mapping_are_rejected_without_a_cause(cluster, objects):
    operations = [{"op": "add", "path": "/status/made/x", "value": 1}]
    with pytest.raises(Invalid) as rejection:
        cluster.api.patch("widgets", "one", operations, subresource="status")
    assert not rejection.value.causes
