"""Handlers that change the spec, the metadata and the status."""

import kopf
from tracer import GROUP, trace


@kopf.on.create(GROUP, "widgets")
def everything_at_once(patch, **kwargs):
    patch.spec["added"] = {"by": "handler", "list": [1, 2]}
    patch.spec["removed"] = None
    patch.meta.labels["made-by"] = "kopf"
    patch.meta.annotations["example.dev/note"] = "annotated"
    patch.status["phase"] = "Ready"
    patch.status.setdefault("nested", {})["deep"] = {"er": True}
    patch.metadata["labels"]["second"] = "label"
    trace({**kwargs, "patch": patch})


@kopf.on.create(GROUP, "widgets")
async def status_only(patch, **kwargs):
    patch["status"] = {"replaced": "yes"}
    trace({**kwargs, "patch": patch})
    return "and a result"


@kopf.on.update(GROUP, "widgets")
def updated(patch, spec, **kwargs):
    if spec.get("source"):
        patch.spec["copied"] = spec["source"]
    patch.status["phase"] = None
    trace({**kwargs, "patch": patch, "spec": spec})


@kopf.on.event(GROUP, "widgets", labels={"stamp": "requested"})
def from_an_event(patch, **kwargs):
    patch.meta.labels["stamp"] = "done"
    trace({**kwargs, "patch": patch})
