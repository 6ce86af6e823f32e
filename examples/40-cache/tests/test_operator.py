"""The operator on an API server: the embedded one, or with --kopf-cluster=assets a real one.

Pods are simulated: there are no nodes that could run them.
"""

import pathlib
import time

import pytest
from kopf.testing import ApiError

HERE = pathlib.Path(__file__).resolve().parents[1]


def cache(name="sessions", **spec):
    return {
        "apiVersion": "cache.examples.kopf.dev/v1",
        "kind": "Cache",
        "metadata": {"name": name},
        "spec": spec,
    }


def set_ready(cluster, name, nodes):
    """Report ready nodes, as Kubernetes does when the pods are ready."""
    workload = cluster.get("statefulsets", name)
    pods = workload["spec"]["replicas"]
    status = {"replicas": pods, "updatedReplicas": pods, "readyReplicas": nodes}
    generation = workload["metadata"]["generation"]
    path = f"/apis/apps/v1/namespaces/{cluster.namespace}/statefulsets/{name}/status"
    cluster.call("PATCH", path, {"status": status | {"observedGeneration": generation}})


def conditions_of(body):
    return {it["type"]: it["status"] for it in (body or {}).get("status", {}).get("conditions", [])}


def wait_for_condition(cluster, name, kind, status="True"):
    def holds(body):
        return conditions_of(body).get(kind) == status

    return cluster.wait_for("caches", name, holds, timeout=30)


def test_a_cache_gets_its_children_and_becomes_ready(cluster):
    cluster.apply(HERE / "cache.yaml")
    workload = cluster.wait_for("statefulsets", "sessions", timeout=30)
    assert workload["spec"]["replicas"] == 2
    cluster.wait_for("services", "sessions", {"spec": {"clusterIP": "None"}})
    owners = cluster.wait_for("secrets", "sessions")["metadata"]["ownerReferences"]
    assert [owner["kind"] for owner in owners] == ["Cache"]
    wait_for_condition(cluster, "sessions", "Progressing")
    set_ready(cluster, "sessions", 2)
    body = wait_for_condition(cluster, "sessions", "Ready")
    assert conditions_of(body) == {"Ready": "True", "Progressing": "False", "Degraded": "False"}
    assert body["status"]["observedGeneration"] == body["metadata"]["generation"]
    set_ready(cluster, "sessions", 1)
    body = wait_for_condition(cluster, "sessions", "Degraded")
    assert body["status"]["readyNodes"] == 1


def test_changes_of_the_spec_are_applied(cluster):
    cluster.apply(HERE / "cache.yaml")
    before = wait_for_condition(cluster, "sessions", "Progressing")
    cluster.patch("caches", "sessions", {"spec": {"replicas": 3, "evictionPolicy": "noeviction"}})
    workload = cluster.wait_for("statefulsets", "sessions", {"spec": {"replicas": 3}})
    [container] = workload["spec"]["template"]["spec"]["containers"]
    assert "noeviction" in container["args"]
    generation = before["metadata"]["generation"] + 1
    cluster.wait_for("caches", "sessions", {"status": {"observedGeneration": generation}})


def test_repairs_are_reported(cluster):
    cluster.apply(HERE / "cache.yaml")
    body = wait_for_condition(cluster, "sessions", "Progressing")
    assert body["status"]["observedGeneration"] == body["metadata"]["generation"]
    # A change made while the operator applies the children is reverted without a report, so it is repeated.
    for _ in range(5):
        cluster.patch("statefulsets", "sessions", {"spec": {"replicas": 5}})
        cluster.wait_for("statefulsets", "sessions", {"spec": {"replicas": 2}})
        if is_reported(cluster, "The StatefulSet differed; it is restored."):
            return
    pytest.fail(f"The repair is not reported: {cluster.list('events')}")


def is_reported(cluster, message):
    """Whether an event with this message comes within 2 seconds."""
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        if any(event["message"] == message for event in cluster.list("events")):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.kopf_embedded_only
def test_an_idle_operator_writes_nothing(cluster):
    cluster.freeze()
    cluster.apply(HERE / "cache.yaml")
    cluster.advance(90)
    versions = [
        cluster.get(kind, "sessions")["metadata"]["resourceVersion"] for kind in ("caches", "statefulsets")
    ]
    cluster.advance(3600)
    assert versions == [
        cluster.get(kind, "sessions")["metadata"]["resourceVersion"] for kind in ("caches", "statefulsets")
    ]


@pytest.mark.kopf_embedded_only
def test_rejected_requests_are_repeated(cluster):
    cluster.inject("conflict", 1, verb="patch", resource="caches", times=2)
    cluster.apply(HERE / "cache.yaml")
    cluster.wait_for("statefulsets", "sessions")
    set_ready(cluster, "sessions", 2)
    wait_for_condition(cluster, "sessions", "Ready")


def test_webhooks_complete_and_check_caches(cluster):
    created = cluster.create(cache("one", memory=1000))
    assert created["spec"]["maxMemory"] == 750
    with pytest.raises(ApiError, match="maxMemory cannot be more than memory"):
        cluster.patch("caches", "one", {"spec": {"maxMemory": 1001}})
    with pytest.raises(ApiError, match="at most 64 GiB"):
        cluster.create(cache("two", memory=60000, replicas=2))
    cluster.patch(
        "caches", "one", {"metadata": {"annotations": {"cache.examples.kopf.dev/protected": "true"}}}
    )
    with pytest.raises(ApiError, match="one is protected"):
        cluster.delete("caches", "one")
    cluster.patch("caches", "one", {"metadata": {"annotations": {"cache.examples.kopf.dev/protected": None}}})
    cluster.delete("caches", "one")
    cluster.wait_until_gone("caches", "one")


def test_a_cache_is_deleted_after_its_backup(cluster):
    cluster.create(cache("sessions", backup={"claim": "backups"}))
    body = cluster.wait_for("caches", "sessions", lambda it: it["metadata"].get("finalizers"))
    cluster.delete("caches", "sessions")
    job = f"sessions-backup-{body['metadata']['uid'][:8]}"
    cluster.wait_for("jobs", job)
    assert cluster.get("caches", "sessions")["metadata"]["finalizers"]
    finish(cluster, job)
    cluster.wait_until_gone("caches", "sessions")
    assert cluster.get("jobs", job), "the job and its log outlive the cache"
    assert "BackedUp" in {event["reason"] for event in cluster.list("events")}


def finish(cluster, job):
    """Report that the job has succeeded, as its controller does."""
    time = cluster.get("jobs", job)["metadata"]["creationTimestamp"]
    done = [
        {"type": kind, "status": "True", "reason": "CompletionsReached", "lastTransitionTime": time}
        for kind in ("SuccessCriteriaMet", "Complete")
    ]
    path = f"/apis/batch/v1/namespaces/{cluster.namespace}/jobs/{job}/status"
    status = {"succeeded": 1, "startTime": time, "completionTime": time, "conditions": done}
    cluster.call("PATCH", path, {"status": status})


def test_a_cache_without_a_backup_is_deleted_at_once(cluster):
    cluster.apply(HERE / "cache.yaml")
    wait_for_condition(cluster, "sessions", "Progressing")
    cluster.delete("caches", "sessions")
    cluster.wait_until_gone("caches", "sessions")
