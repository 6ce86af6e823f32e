"""The handlers of recipes do what the pages describe, on the embedded API server."""

import contextlib
import logging
import pathlib
import re
import socket
import threading

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

    def run(page, number, replaced=("", "")):
        text = (ROOT / "docs/how-to" / f"{page}.md").read_text()
        block = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)[number].replace(*replaced)
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


def test_a_timer_of_one_object_is_a_task_of_the_operator(cluster, run):
    cluster.freeze()
    cluster.create(resource("Site"))
    labels = {"example.com/task": "report"}
    for name, own in ("report", labels), ("other", {}):
        cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": own}})
    with run("operator-tasks", 0):
        cluster.advance("1s")
        assert cluster.get("configmaps", "report")["data"] == {"sites": "1"}
        cluster.delete("sites", "first")
        cluster.advance("1h")
        assert cluster.get("configmaps", "report")["data"] == {"sites": "0"}
        assert "data" not in cluster.get("configmaps", "other")


def test_a_background_task_runs_until_the_operator_ends(run):
    failing = "async def clean_up():\n    raise LookupError('no such thing')\n"
    replaced = ("async def clean_up(): ...\n", failing)
    with expected_line("The clean-up has failed."), run("operator-tasks", 1, replaced) as operator:
        operator.wait_until_idle()


def test_events_of_other_systems_call_the_reconciler(cluster, run, caplog):
    caplog.set_level("INFO")
    line = "The site first is compared with the other system."
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with run("external-events", 0, ("8090", str(port))) as operator:
        with expected_line(line):
            cluster.create(resource("Site"))
        operator.wait_until_idle()
        with expected_line(line), socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(b"default/unknown\ndefault/first\n")


@contextlib.contextmanager
def expected_line(text):
    """Wait at the end of the block until this line has been logged in it."""
    logged = threading.Event()

    class Expecting(logging.Handler):
        def emit(self, record):
            if record.getMessage() == text:
                logged.set()

    handler = Expecting()
    logging.getLogger().addHandler(handler)
    try:
        yield
        assert logged.wait(30), f"{text} is not logged"
    finally:
        logging.getLogger().removeHandler(handler)
