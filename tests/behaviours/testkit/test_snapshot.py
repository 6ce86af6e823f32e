"""Snapshots of clusters: the content of the file, and the restored objects."""

import json

import click
import pytest
import yaml
from kopf._cli import dev
from kopf._testing import snapshot
from kopf._testing.client import ApiError
from kopf.testing import Cluster

pytestmark = pytest.mark.kopf_embedded_only
METRIC = {
    "type": "Resource",
    "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 50}},
}
SCALER = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "one"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "one"},
        "maxReplicas": 3,
        "metrics": [METRIC],
    },
}
CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: things, kind: Thing}
  versions:
    - {name: v1, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
    - name: v1alpha1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties: {spec: {type: object, properties: {size: {type: integer}}}}
"""
THING = {
    "apiVersion": "example.com/v1alpha1",
    "kind": "Thing",
    "metadata": {"name": "one"},
    "spec": {"size": 1},
}
HOOK = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: dead}
webhooks:
  - name: dead.example.com
    admissionReviewVersions: [v1]
    sideEffects: None
    failurePolicy: Fail
    clientConfig: {url: "https://localhost:1/"}
    rules: [{apiGroups: [example.com], apiVersions: ["*"], resources: [things], operations: ["*"]}]
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.json"


def config(name, **meta):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **meta}}


def owner_reference(body):
    return {
        **{key: body[key] for key in ("apiVersion", "kind")},
        **{k: body["metadata"][k] for k in ("name", "uid")},
    }


def test_objects_are_kept_in_the_preferred_version(path):
    with Cluster() as cluster:
        cluster.create(SCALER)
        snapshot.save(cluster, path)
    with Cluster() as cluster:
        assert snapshot.load(cluster, path).unrestored == []
        assert cluster.get(SCALER, "one")["spec"]["metrics"] == [METRIC]


def test_custom_objects_are_kept_in_the_stored_version(path):
    with Cluster() as cluster:
        cluster.apply(CRD)
        cluster.create(THING)
        snapshot.save(cluster, path)
    with Cluster() as cluster:
        assert snapshot.load(cluster, path).unrestored == []
        assert cluster.get(THING, "one")["spec"] == {"size": 1}


def test_crds_whose_names_are_in_use_stay_in_the_file(path):
    crd = yaml.safe_load(CRD)
    later = {**crd, "metadata": {"name": "others.example.com"}}
    later["spec"] = {**crd["spec"], "names": {"plural": "others", "kind": "Thing"}}
    with Cluster() as cluster:
        cluster.apply(crd)
        cluster.create(THING)
        with pytest.raises(ValueError, match=r"'others\.example\.com' are not accepted: .*in use"):
            cluster.apply(later)
        total = snapshot.save(cluster, path).total
    with Cluster() as cluster:
        restored, [(body, problem)] = snapshot.load(cluster, path)
        assert (restored, body["metadata"]["name"]) == (total - 1, "others.example.com")
        assert "already in use" in problem
        assert cluster.get(THING, "one")["spec"] == {"size": 1}


def test_deletions_continue(path):
    with Cluster() as cluster:
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gone"}})
        cluster.create(config("one", finalizers=["example.com/x"]), namespace="gone")
        cluster.delete("namespaces", "gone")
        cluster.wait_for("configmaps", "one", is_deleting, "gone")
        snapshot.save(cluster, path)
    with Cluster() as cluster:
        assert snapshot.load(cluster, path).unrestored == []
        cluster.wait_for("configmaps", "one", is_deleting, "gone")
        cluster.patch("configmaps", "one", {"metadata": {"finalizers": None}}, "gone")
        cluster.wait_until_gone("namespaces", "gone")


def is_deleting(body):
    return "deletionTimestamp" in body["metadata"]


def test_objects_that_cannot_be_restored_stay_in_the_file(path):
    with Cluster() as cluster:
        cluster.apply(CRD)
        owner = cluster.create(THING)
        cluster.create(config("owned", ownerReferences=[owner_reference(owner)]))
        snapshot.save(cluster, path)
    bodies = json.loads(path.read_text())
    [crd] = [body for body in bodies if body["kind"] == "CustomResourceDefinition"]
    size = crd["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["size"]
    size["minimum"] = 2
    path.write_text(json.dumps(bodies))
    with Cluster() as cluster:
        total, unrestored = snapshot.load(cluster, path)
        assert total == len(bodies) - 2
        assert {item.body["metadata"]["name"]: item.problem for item in unrestored} == {
            "one": unrestored[0].problem,
            "owned": "its owner is not restored: Thing one",
        }
        assert "should be greater than or equal to 2" in unrestored[0].problem
        snapshot.save(cluster, path, unrestored)
        assert len(json.loads(path.read_text())) == len(bodies)
        # Another object of the name replaces it.
        cluster.create({**THING, "spec": {"size": 2}})
        snapshot.save(cluster, path, unrestored)
    with Cluster() as cluster:
        assert snapshot.load(cluster, path).total == len(bodies)
        assert cluster.get(THING, "one")["spec"] == {"size": 2}


def test_webhooks_do_not_review_restored_objects(path):
    held = {**THING, "metadata": {"name": "two", "finalizers": ["example.com/x"]}}
    with Cluster() as cluster:
        cluster.apply(CRD)
        cluster.create(THING)
        cluster.create(held)
        cluster.delete(held, "two")
        cluster.create(HOOK)
        snapshot.save(cluster, path)
    with Cluster() as cluster:
        assert snapshot.load(cluster, path).unrestored == []
        assert is_deleting(cluster.get(THING, "two"))
        with pytest.raises(ApiError, match=r"dead\.example\.com"):
            cluster.create({**THING, "metadata": {"name": "three"}})


def test_kinds_that_cannot_be_listed_are_reported(path):
    crd = yaml.safe_load(CRD)
    client = {"service": {"namespace": "default", "name": "none"}}
    webhook = {"conversionReviewVersions": ["v1"], "clientConfig": client}
    with Cluster() as cluster:
        cluster.apply(crd)
        cluster.create(THING)
        cluster.create(config("one"))
        first, second = crd["spec"]["versions"]
        second["storage"], first["storage"] = False, True
        conversion = {"strategy": "Webhook", "webhook": webhook}
        changes = {"spec": {"versions": crd["spec"]["versions"], "conversion": conversion}}
        cluster.patch("crd", "things.example.com", changes)
        saved = snapshot.save(cluster, path)
        [problem] = saved.problems
        assert problem.startswith("things are not kept: ")
    names = {(body["kind"], body["metadata"]["name"]) for body in json.loads(path.read_text())}
    assert ("ConfigMap", "one") in names and ("Thing", "one") not in names


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "it is not JSON: "),
        (b"\xff", "it is not JSON: "),
        (b"{}", "it is not a list of objects"),
        (b"[1]", "it is not a list of objects"),
        (b'[{"apiVersion": "v1", "kind": "Pod", "metadata": {}}]', "it is not a list of objects"),
    ],
)
def test_other_files_are_one_paragraph_and_stay_as_they_are(tmp_path, text, problem):
    path = tmp_path / "state.json"
    path.write_bytes(text)
    with pytest.raises(click.ClickException, match=rf"The objects in .*\.json cannot be read: {problem}"):
        dev._load(Cluster(), path)
    assert path.read_bytes() == text


def test_files_that_cannot_be_read_are_one_paragraph(tmp_path):
    with pytest.raises(click.ClickException, match="cannot be read: Is a directory"):
        dev._load(Cluster(), tmp_path)
