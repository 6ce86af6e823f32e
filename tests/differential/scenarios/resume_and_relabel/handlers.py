"""Resuming handlers with a filter and a retry; one function for creation and resuming."""

import kopf
from tracer import GROUP, trace


@kopf.on.resume(GROUP, "widgets", labels={"role": "main"})
def resumed_main(retry, **kwargs):
    trace({**kwargs, "retry": retry})
    if not retry:
        raise kopf.TemporaryError("resume later", delay=1)


@kopf.on.resume(GROUP, "widgets")
@kopf.on.create(GROUP, "widgets")
def either(**kwargs):
    trace(kwargs)
    return kwargs["reason"]
