"""A reconciler of widgets, whose spec selects what it does."""

import kopf


@kopf.on.reconcile("widgets")
async def sync(name, spec, status, retry, memo, patch, api, conditions, deleting, stopped, **_):
    memo.calls.append(("sync", name, spec.get("size"), retry))
    if "requeue" in spec:
        raise kopf.Requeue(spec["requeue"], "not yet")
    if spec.get("fails"):
        raise ValueError("boo")
    if "delay" in spec:
        raise kopf.TemporaryError("later", delay=spec["delay"])
    if spec.get("permanent"):
        raise kopf.PermanentError("never")
    if "phase" in spec:
        patch.status["phase"] = spec["phase"]
    if "result" in spec:
        return spec["result"]
    return None
