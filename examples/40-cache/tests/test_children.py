"""Unit tests: the manifests and the conditions, without any server."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import children
import conditions
import kopf

SPEC = {"replicas": 2, "memory": 256, "evictionPolicy": "allkeys-lru", "version": "8.1"}
READY = {
    "metadata": {"generation": 1},
    "status": {"readyReplicas": 2, "updatedReplicas": 2, "observedGeneration": 1},
}


def test_a_quarter_of_the_memory_is_for_the_server():
    [container] = children.stateful_set("a", SPEC, "u")["spec"]["template"]["spec"]["containers"]
    assert container["args"][:2] == ["--maxmemory", "192mb"]
    assert container["resources"]["limits"] == {"memory": "256Mi"}


def test_the_backup_copies_every_node():
    job = children.backup_job("a", SPEC | {"backup": {"claim": "b"}}, "0123456789")
    assert job["metadata"]["name"] == "a-backup-01234567"
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert [line.split()[2] for line in container["command"][2].splitlines()] == ["a-0.a", "a-1.a"]


@pytest.mark.parametrize(
    ("workload", "was_ready", "expected"),
    [
        ({"metadata": {"generation": 1}}, False, "Progressing"),
        (READY, False, "Ready"),
        (
            READY | {"status": {"readyReplicas": 1, "updatedReplicas": 2, "observedGeneration": 1}},
            True,
            "Degraded",
        ),
        (
            READY | {"status": {"readyReplicas": 1, "updatedReplicas": 2, "observedGeneration": 1}},
            False,
            "Progressing",
        ),
        (READY | {"metadata": {"generation": 2}}, True, "Progressing"),
    ],
)
def test_exactly_one_condition_is_true(workload, was_ready, expected):
    before = kopf.Conditions({"status": {"conditions": [{"type": "Ready", "status": str(was_ready)}]}})
    states, reason, message, ready = conditions.states_of(2, workload, before)
    assert [kind for kind, status in states.items() if status] == [expected]
    assert reason == ("AllNodesReady" if expected == "Ready" else "NodesNotReady")
    assert message == f"{ready} of 2 nodes are ready."
