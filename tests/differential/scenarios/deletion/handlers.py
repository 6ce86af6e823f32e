"""A mandatory and an optional deletion handler."""

import kopf
from tracer import GROUP, trace


@kopf.on.delete(GROUP, "widgets")
def mandatory(retry, **kwargs):
    trace({**kwargs, "retry": retry})
    if retry < 1:
        raise kopf.TemporaryError("hold on", delay=3)


@kopf.on.delete(GROUP, "gadgets", optional=True)
def optional(**kwargs):
    trace(kwargs)


@kopf.on.create(GROUP, "gadgets")
def gadget_created(**kwargs):
    trace(kwargs)
