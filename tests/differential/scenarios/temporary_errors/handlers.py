"""Handlers that fail temporarily, with and without a delay, and with a limit of retries."""

import kopf
from tracer import GROUP, trace


@kopf.on.create(GROUP, "widgets")
def flaky(retry, spec, **kwargs):
    trace({**kwargs, "retry": retry, "spec": spec})
    if retry < spec.get("failures", 0):
        raise kopf.TemporaryError(f"failure #{retry}", delay=2)
    return retry


@kopf.on.create(GROUP, "widgets")
def steady(**kwargs):
    trace(kwargs)


@kopf.on.update(GROUP, "widgets", retries=3)
async def never(retry, **kwargs):
    trace({**kwargs, "retry": retry})
    raise kopf.TemporaryError("again", delay=0.5)


@kopf.on.update(GROUP, "widgets")
async def undelayed(retry, **kwargs):
    trace({**kwargs, "retry": retry})
    if not retry:
        raise kopf.TemporaryError("at once", delay=0)
