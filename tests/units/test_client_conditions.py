"""Conditions of `wait_for`: when objects of which kind are ready."""

import kopf
import pytest
from kopf import client

OBSERVED = {"observedGeneration": 2}
SET = {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2, "readyReplicas": 2}


def when(type, status="True", **fields):
    return {"conditions": [{"type": type, "status": status, **fields}]}


def body(kind, api_version, spec=None, status=None, **metadata):
    return kopf.Body(
        {
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"name": "x", "generation": 2, **metadata},
            "spec": spec or {},
            "status": status or {},
        }
    )


READY = [
    ("Deployment", "apps/v1", {"replicas": 2}, {**OBSERVED, **SET}),
    ("Deployment", "apps/v1", {"replicas": 0}, OBSERVED),
    (
        "StatefulSet",
        "apps/v1",
        {"replicas": 2},
        {**OBSERVED, **SET, "currentRevision": "a", "updateRevision": "a"},
    ),
    (
        "StatefulSet",
        "apps/v1",
        {"replicas": 2, "updateStrategy": {"rollingUpdate": {"partition": 1}}},
        {**OBSERVED, "readyReplicas": 2, "updatedReplicas": 1, "currentRevision": "a", "updateRevision": "b"},
    ),
    (
        "StatefulSet",
        "apps/v1",
        {"replicas": 2, "updateStrategy": {"type": "OnDelete"}},
        {**OBSERVED, "readyReplicas": 2, "currentRevision": "a", "updateRevision": "b"},
    ),
    (
        "DaemonSet",
        "apps/v1",
        {},
        {**OBSERVED, "desiredNumberScheduled": 1, "updatedNumberScheduled": 1, "numberAvailable": 1},
    ),
    ("ReplicaSet", "apps/v1", {"replicas": 2}, {**OBSERVED, "readyReplicas": 2}),
    ("Job", "batch/v1", {}, when("Complete")),
    ("Pod", "v1", {}, {"phase": "Succeeded"}),
    ("Pod", "v1", {}, when("Ready")),
    ("PersistentVolumeClaim", "v1", {}, {"phase": "Bound"}),
    ("Service", "v1", {"type": "ClusterIP"}, {}),
    ("Service", "v1", {"type": "LoadBalancer"}, {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}),
    ("Namespace", "v1", {}, {"phase": "Active"}),
    ("PodDisruptionBudget", "policy/v1", {}, {**OBSERVED, "currentHealthy": 2, "desiredHealthy": 1}),
    ("Widget", "example.com/v1", {}, {}),
    ("Widget", "example.com/v1", {}, when("Available")),
    ("Deployment", "example.com/v1", {"replicas": 5}, when("Ready", observedGeneration=2)),
]
NOT_READY = [
    ("Deployment", "apps/v1", {"replicas": 2}, {**OBSERVED, **SET, "replicas": 3}),
    ("Deployment", "apps/v1", {"replicas": 2}, {**SET, "observedGeneration": 1}),
    ("Deployment", "apps/v1", {"replicas": 0}, {}),
    (
        "StatefulSet",
        "apps/v1",
        {"replicas": 2},
        {**OBSERVED, **SET, "currentRevision": "a", "updateRevision": "b"},
    ),
    (
        "DaemonSet",
        "apps/v1",
        {},
        {**OBSERVED, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 1},
    ),
    ("ReplicaSet", "apps/v1", {"replicas": 2}, {**OBSERVED, "readyReplicas": 1}),
    ("Job", "batch/v1", {}, when("Failed")),
    ("Pod", "v1", {}, when("Ready", "False")),
    ("PersistentVolumeClaim", "v1", {}, {"phase": "Pending"}),
    ("Service", "v1", {"type": "LoadBalancer"}, {}),
    ("Namespace", "v1", {}, {"phase": "Terminating"}),
    ("PodDisruptionBudget", "policy/v1", {}, {**OBSERVED, "currentHealthy": 0, "desiredHealthy": 1}),
    ("Widget", "example.com/v1", {}, when("Ready", "Unknown")),
    ("Widget", "example.com/v1", {}, when("Ready", observedGeneration=1)),
    ("Widget", "example.com/v1", {}, {"observedGeneration": 1}),
]


@pytest.mark.parametrize("kind, api_version, spec, status", READY)
def test_ready(kind, api_version, spec, status):
    assert client.ready(body(kind, api_version, spec, status))
    being_deleted = body(kind, api_version, spec, status, deletionTimestamp="2020-01-01T00:00:00Z")
    assert not client.ready(being_deleted)


@pytest.mark.parametrize("kind, api_version, spec, status", NOT_READY)
def test_not_ready(kind, api_version, spec, status):
    assert not client.ready(body(kind, api_version, spec, status))


def test_absent_objects():
    assert client.gone(None)
    conditions = (client.exists, client.ready, client.complete, client.established, client.condition("Ready"))
    assert not any(condition(None) for condition in (*conditions, client.field("spec.x", 1)))


def test_fields_have_their_types():
    found = body("Widget", "example.com/v1", {"x": 1, "y": {"z": None}})
    assert client.field("spec.x", 1)(found)
    assert not client.field("spec.x", True)(found)
    assert client.field("spec.y.z", None)(found)
    assert client.field("spec.y.z.q", None)(found)
