"""Run Jobs on a schedule, like the CronJob controller of the Kubebuilder book."""

import datetime

import kopf
import schedule

LABEL, SCHEDULED = "example.com/cron-job", "example.com/scheduled-at"


@kopf.on.reconcile("cronjobs.example.com", owns=["jobs"])
async def run_jobs(name, spec, meta, status, patch, api, started, runtime, **_):
    """Start the Job that is due, and delete old ones. The end of a Job calls the function again."""
    now = started + runtime
    jobs = sorted(await api.list("jobs", labels={LABEL: name}), key=time_of)
    active = [job for job in jobs if outcome_of(job) is None]
    known = [status.get("lastScheduleTime"), *(job.metadata.annotations[SCHEDULED] for job in jobs)]
    last = max(filter(None, known), default=None)
    patch.status["active"] = [job.metadata.name for job in active]
    patch.status["lastScheduleTime"] = last
    for outcome, limit in (("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")):
        ended = [job for job in jobs if outcome_of(job) == outcome]
        for job in ended[: max(0, len(ended) - spec.get(limit, len(ended)))]:
            await api.delete("jobs", job.metadata.name, propagation="background", missing_ok=True)
    if spec.get("suspend"):
        return None
    try:
        plan = schedule.parse(spec["schedule"])
    except ValueError as error:
        raise kopf.PermanentError(str(error)) from None
    due = schedule.latest_between(plan, parse_time(last or meta["creationTimestamp"]), now)
    following = schedule.next_after(plan, now)
    is_late = due and "startingDeadlineSeconds" in spec and age(due, now) > spec["startingDeadlineSeconds"]
    policy = spec.get("concurrencyPolicy", "Allow")
    if due and not is_late and not (policy == "Forbid" and active):
        for job in active if policy == "Replace" else ():
            await api.delete("jobs", job.metadata.name, propagation="background", missing_ok=True)
        # The name contains the time: a Job is never started twice, also after a crash.
        await kopf.apply(job_of(name, spec, due))
    return following and kopf.Requeue(age(now, following), f"the next Job is due at {following}")


def job_of(name, spec, due):
    annotations = {SCHEDULED: due.isoformat()}
    metadata = {"name": f"{name}-{int(due.timestamp())}", "labels": {LABEL: name}, "annotations": annotations}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": dict(spec["jobTemplate"])}


def outcome_of(job):
    """`Complete`, `Failed`, or None for a Job that has not ended."""
    found = [it["type"] for it in job.status.get("conditions", []) if it["status"] == "True"]
    return next((kind for kind in found if kind in ("Complete", "Failed")), None)


def time_of(job):
    return job.metadata.annotations[SCHEDULED]


def parse_time(text):
    return datetime.datetime.fromisoformat(text)


def age(start, end):
    return (end - start).total_seconds()
