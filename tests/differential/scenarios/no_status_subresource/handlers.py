"""Handlers that write into the status, and one of a field in the status."""

import kopf
from tracer import GROUP, trace


@kopf.on.create(GROUP, "gadgets")
@kopf.on.update(GROUP, "gadgets")
def reconcile(patch, spec, **kwargs):
    patch.status["seen"] = spec.get("level")
    trace({**kwargs, "patch": patch, "spec": spec})
    return {"level": spec.get("level")}


@kopf.on.update(GROUP, "gadgets", id="other-id")
async def second(**kwargs):
    trace(kwargs)


@kopf.on.field(GROUP, "gadgets", field="status.outside")
def status_watched(**kwargs):
    trace(kwargs)
