"""The operator on an API server: the embedded one, or with --kopf-cluster=assets a real one.

Pods are simulated: there are no nodes that could run them.
"""

import pathlib
import time

import pytest
from kopf.testing import ApiError

HERE = pathlib.Path(__file__).resolve().parents[1]
WEBHOOKS = "webhooks.cache.examples.kopf.dev"

kubernetes = pytest.importorskip("kubernetes", reason="the official client is needed: pip install kubernetes")


@pytest.fixture
def cluster(kopf_cluster, kopf_operator, monkeypatch):
    """The operator runs, and the API server calls its webhooks."""
    monkeypatch.setenv("KUBECONFIG", str(kopf_cluster.kubeconfig))
    kubernetes.config.load_kube_config(str(kopf_cluster.kubeconfig))
    kopf_cluster.apply(HERE / "deploy/base/crd.yaml")
    kopf_operator(HERE / "handlers.py")
    for plural in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
        kopf_cluster.wait_for(plural, WEBHOOKS, lambda it: it and it.get("webhooks"))
    wait_for_webhooks(kopf_cluster)
    return kopf_cluster


def wait_for_webhooks(cluster):
    """API servers notice new webhooks after a moment: send dry runs until they do."""
    path = f"/apis/cache.examples.kopf.dev/v1/namespaces/{cluster.namespace}/caches?dryRun=All"
    deadline = time.monotonic() + 30
    while "maxMemory" not in cluster.call("POST", path, cache("probe"))["spec"]:
        assert time.monotonic() < deadline, "The API server does not call the webhooks."


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
    return cluster.wait_for("caches", name, lambda body: conditions_of(body).get(kind) == status)


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


def test_changes_of_children_are_reverted(cluster):
    cluster.apply(HERE / "cache.yaml")
    wait_for_condition(cluster, "sessions", "Progressing")
    cluster.patch("statefulsets", "sessions", {"spec": {"replicas": 7}})
    cluster.wait_for("statefulsets", "sessions", {"spec": {"replicas": 2}})
    uid = cluster.get("services", "sessions")["metadata"]["uid"]
    cluster.delete("services", "sessions")
    cluster.wait_for("services", "sessions", lambda it: it and it["metadata"]["uid"] != uid)


@pytest.mark.kopf_embedded_only
def test_a_deleted_secret_is_recreated_within_a_minute(cluster):
    cluster.freeze()
    cluster.apply(HERE / "cache.yaml")
    cluster.advance(10)
    before = cluster.get("statefulsets", "sessions")["spec"]["template"]
    cluster.delete("secrets", "sessions")
    cluster.advance(60)
    assert cluster.get("secrets", "sessions")
    assert cluster.get("statefulsets", "sessions")["spec"]["template"] != before, "the nodes are restarted"


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
    body = wait_for_condition(cluster, "sessions", "Progressing")
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
