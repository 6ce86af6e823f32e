"""Controllers of other frameworks, as examples with reconcilers. Section 10."""

import datetime
import pathlib

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"


def test_10_the_generator_of_kube_rs(kopf_cluster, kopf_operator):
    folder = EXAMPLES / "16-config-map-generator"
    kopf_cluster.apply(folder / "crd.yaml")
    kopf_operator(folder / "example.py")
    kopf_cluster.apply(folder / "obj.yaml")
    first = kopf_cluster.wait_for("configmaps", "greeting-configmap", {"data": {"content": "hello"}})
    kopf_cluster.patch("configmaps", "greeting-configmap", {"data": {"content": "other"}})
    kopf_cluster.wait_for("configmaps", "greeting-configmap", {"data": {"content": "hello"}})
    kopf_cluster.delete("configmaps", "greeting-configmap")
    uid = first["metadata"]["uid"]
    is_new = lambda it: it is not None and it["metadata"]["uid"] != uid  # noqa: E731
    again = kopf_cluster.wait_for("configmaps", "greeting-configmap", is_new)
    [owner] = again["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("ConfigMapGenerator", "greeting", True)
    kopf_cluster.patch("configmapgenerators", "greeting", {"spec": {"content": "changed"}})
    kopf_cluster.wait_for("configmaps", "greeting-configmap", {"data": {"content": "changed"}})


@pytest.fixture
def cron(kopf_cluster, kopf_operator):
    """Creates a cron job for every five minutes, in frozen time, 100 seconds after a scheduled time."""
    folder = EXAMPLES / "17-cron-jobs"
    kopf_cluster.freeze()
    kopf_cluster.advance((100 - kopf_cluster.now.timestamp()) % 300)
    kopf_cluster.apply(folder / "crd.yaml")
    kopf_operator(folder / "example.py", strict=False)

    def make(**spec):
        container = {"name": "a", "image": "a"}
        template = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
        body = {"apiVersion": "example.com/v1", "kind": "CronJob", "metadata": {"name": "a"}}
        kopf_cluster.create(body | {"spec": {"schedule": "*/5 * * * *", "jobTemplate": template, **spec}})
        kopf_cluster.advance(300)
        return kopf_cluster

    return make


def jobs(cluster):
    return sorted(job["metadata"]["name"] for job in cluster.list("jobs"))


def finish(cluster, name, kind="Complete"):
    conditions = {"status": {"conditions": [{"type": kind, "status": "True"}]}}
    cluster.patch("jobs", name, conditions, subresource="status")
    cluster.advance(0)


@pytest.mark.kopf_embedded_only
def test_10_cron_jobs_run_on_their_schedule(cron):
    cluster = cron(successfulJobsHistoryLimit=1)
    [first] = jobs(cluster)
    [job] = cluster.list("jobs")
    scheduled = datetime.datetime.fromisoformat(job["metadata"]["annotations"]["example.com/scheduled-at"])
    assert (scheduled.minute % 5, scheduled.second) == (0, 0)
    assert cluster.get("cronjobs.example.com", "a")["status"]["active"] == [first]
    finish(cluster, first)
    assert cluster.get("cronjobs.example.com", "a")["status"]["active"] == []
    cluster.advance(300)
    assert len(jobs(cluster)) == 2
    finish(cluster, jobs(cluster)[1])
    assert len(jobs(cluster)) == 1 and first not in jobs(cluster), "the old Job is deleted"


@pytest.mark.kopf_embedded_only
@pytest.mark.parametrize(("policy", "count"), [("Allow", 3), ("Forbid", 1), ("Replace", 1)])
def test_10_cron_jobs_limit_concurrent_jobs(cron, policy, count):
    cluster = cron(concurrencyPolicy=policy)
    [first] = jobs(cluster)
    cluster.advance(600)
    assert len(jobs(cluster)) == count
    assert (first in jobs(cluster)) == (policy != "Replace")


@pytest.mark.kopf_embedded_only
def test_10_cron_jobs_can_be_suspended_and_may_be_too_late(cron):
    cluster = cron(suspend=True, startingDeadlineSeconds=10)
    assert jobs(cluster) == []
    cluster.advance(60)
    cluster.patch("cronjobs.example.com", "a", {"spec": {"suspend": False}})
    cluster.advance(0)
    cluster.advance(300)
    assert len(jobs(cluster)) == 1


@pytest.mark.kopf_embedded_only
def test_10_a_wrong_schedule_is_an_error(cron, caplog):
    cluster = cron(schedule="61 * * * *")
    assert jobs(cluster) == []
    assert "'61' is not from 0 to 59." in caplog.text
