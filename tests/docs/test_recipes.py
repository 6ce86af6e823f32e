"""The handlers of recipes do what the pages describe, on the embedded API server."""

import pathlib
import re

import pytest
from kopf.testing import Cluster, Operator

from tests.support.crds import GROUP, crd

ROOT = pathlib.Path(__file__).resolve().parents[2]


def resource(kind, **spec):
    metadata = {"name": "first", "namespace": "default"}
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata, "spec": spec}


@pytest.fixture
def cluster():
    with Cluster(controllers=True) as cluster:
        cluster.apply([crd("sites", "Site"), crd("shops", "Shop"), crd("caches", "Cache")])
        yield cluster


@pytest.fixture
def run(cluster, tmp_path):
    """Runs a Python block of a recipe as an operator."""

    def run(page, number):
        text = (ROOT / "docs/how-to" / f"{page}.md").read_text()
        block = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)[number]
        assert "\n@kopf." in block
        path = tmp_path / "recipe.py"
        path.write_text(block)
        return Operator(cluster, path)

    return run


def has(kind, status, reason):
    """A condition with the state and the reason."""

    def check(body):
        conditions = (body or {}).get("status", {}).get("conditions", [])
        return any((it["type"], it["status"], it["reason"]) == (kind, status, reason) for it in conditions)

    return check


def test_children_are_applied_and_pruned(cluster, run):
    with run("apply-children", 0):
        cluster.create(resource("Site", image="web:1", public=True))
        cluster.wait_for("services", "first", {"spec": {"selector": {"app": "first"}}})
        deployment = cluster.wait_for("deployments", "first")
        assert deployment["metadata"]["ownerReferences"][0]["kind"] == "Site"
        cluster.patch("sites", "first", {"spec": {"public": False}})
        cluster.wait_until_gone("services", "first")
        assert cluster.find("deployments", "first") is not None


def test_conditions_keep_the_time_of_their_transition(cluster, run):
    with run("conditions", 0) as operator:
        cluster.create(resource("Cache", nodes=2))
        found = cluster.wait_for("caches", "first", has("Ready", "False", "Starting"))
        since = found["status"]["conditions"][0]["lastTransitionTime"]
        cluster.patch("caches", "first", {"spec": {"nodes": 3}})
        found = cluster.wait_for("caches", "first", {"status": {"observedGeneration": 2}})
        operator.wait_until_idle()
        assert [it["lastTransitionTime"] for it in found["status"]["conditions"]] == [since]


def test_an_operator_starts_without_scanning(run):
    with run("namespaces", 0) as operator:
        assert operator.settings.scanning.disabled


def test_the_status_follows_the_children(cluster, run):
    with run("react-to-children", 0):
        cluster.create(resource("Shop", replicas=2, image="web:1"))
        cluster.wait_for("shops", "first", has("Ready", "True", "Replicas"))
        assert cluster.get("deployments", "first")["spec"]["replicas"] == 2
        cluster.delete("deployments", "first")
        cluster.wait_for("deployments", "first")


def test_a_named_secret_is_watched(cluster, run):
    with run("refer-to-a-secret", 0):
        cluster.create(resource("Shop", secret="keys"))
        cluster.wait_for("shops", "first", has("Ready", "False", "NoSecret"))
        cluster.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}})
        cluster.wait_for("shops", "first", has("Ready", "True", "SecretFound"))


def test_labelled_objects_are_mapped_to_primaries(cluster, run, caplog):
    caplog.set_level("INFO")
    with run("refer-to-a-secret", 1) as operator:
        cluster.create(resource("Shop"))
        operator.wait_until_idle()
        caplog.clear()
        labels = {"shops": "first.second"}
        cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "labels": labels}})
        operator.wait_until_idle()
        assert "One of the ConfigMaps of first has changed." in caplog.messages


def test_conditions_of_a_reconciler(cluster, run):
    with run("status-conditions", 0):
        cluster.create(resource("Shop", replicas=1))
        cluster.wait_for("shops", "first", has("Ready", "True", "Running"))
        cluster.patch("shops", "first", {"spec": {"replicas": 0}})
        cluster.wait_for("shops", "first", has("Ready", "False", "ScaledToZero"))
        found = cluster.wait_for("shops", "first", {"status": {"observedGeneration": 2}})
        assert "Reconciled" in [it["type"] for it in found["status"]["conditions"]]
