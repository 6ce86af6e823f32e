"""A creation handler that never succeeds, and a deletion handler."""

import kopf
from tracer import GROUP, trace


@kopf.on.create(GROUP, "widgets")
def quick(**kwargs):
    trace(kwargs)


@kopf.on.create(GROUP, "widgets")
def stubborn(retry, **kwargs):
    trace({**kwargs, "retry": retry})
    raise kopf.TemporaryError("never ready", delay=30)


@kopf.on.delete(GROUP, "widgets")
def teardown(**kwargs):
    trace(kwargs)
    return "torn down"
