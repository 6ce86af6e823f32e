"""Handlers of built-in kinds: change handlers, field handlers, event handlers."""

import kopf
from tracer import trace


@kopf.on.create("configmaps")
@kopf.on.update("configmaps")
def configmap(patch, **kwargs):
    patch["data"] = {"handled": kwargs["reason"]} if kwargs["reason"] == "create" else {"more": "x"}
    trace({**kwargs, "patch": patch})


@kopf.on.field("", "v1", "secrets", field="data.password")
def password(**kwargs):
    trace(kwargs)


@kopf.on.event("v1", "pods")
def pod_event(**kwargs):
    trace(kwargs)


@kopf.on.delete("pods")
async def pod_deleted(**kwargs):
    trace(kwargs)


@kopf.on.create("apps", "v1", "deployments")
def deployed(**kwargs):
    trace(kwargs)
    return {"results": "are pruned by the schema"}
