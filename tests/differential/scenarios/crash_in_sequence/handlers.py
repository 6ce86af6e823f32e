"""Four creation handlers: the third one is retried, the last one takes as long as the spec requests."""

import time

import kopf
from tracer import GROUP, trace


@kopf.on.create(GROUP, "widgets")
def first(**kwargs):
    trace(kwargs)
    return 1


@kopf.on.create(GROUP, "widgets")
def second(**kwargs):
    trace(kwargs)
    return 2


@kopf.on.create(GROUP, "widgets")
def third(retry, **kwargs):
    trace({**kwargs, "retry": retry})
    if not retry:
        raise kopf.TemporaryError("be patient", delay=5)
    return 3


@kopf.on.create(GROUP, "widgets")
def fourth(spec, **kwargs):
    trace({**kwargs, "spec": spec})
    time.sleep(spec.get("sleep", 0))
    return 4
