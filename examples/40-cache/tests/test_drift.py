"""Changes of children are reverted."""

import pathlib

import pytest

HERE = pathlib.Path(__file__).resolve().parents[1]


def test_changes_of_children_are_reverted(cluster):
    cluster.apply(HERE / "cache.yaml")
    cluster.wait_for("statefulsets", "sessions", {"spec": {"replicas": 2}})
    cluster.patch("statefulsets", "sessions", {"spec": {"replicas": 7}})
    cluster.wait_for("statefulsets", "sessions", {"spec": {"replicas": 2}})
    uid = cluster.get("services", "sessions")["metadata"]["uid"]
    cluster.delete("services", "sessions")
    cluster.wait_for("services", "sessions", lambda it: it and it["metadata"]["uid"] != uid)


@pytest.mark.kopf_embedded_only
def test_a_deleted_secret_is_recreated_within_a_minute(cluster):
    cluster.freeze()
    cluster.apply(HERE / "cache.yaml")
    cluster.advance("10s")
    before = cluster.get("statefulsets", "sessions")["spec"]["template"]
    cluster.delete("secrets", "sessions")
    cluster.advance("1m")
    assert cluster.get("secrets", "sessions")
    assert cluster.get("statefulsets", "sessions")["spec"]["template"] != before, "the nodes are restarted"
