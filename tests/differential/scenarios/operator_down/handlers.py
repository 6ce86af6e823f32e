"""Change handlers and resuming handlers."""

import kopf
from tracer import GROUP, trace


@kopf.on.create(GROUP, "widgets")
def created(**kwargs):
    trace(kwargs)


@kopf.on.update(GROUP, "widgets")
def updated(**kwargs):
    trace(kwargs)


@kopf.on.delete(GROUP, "widgets")
def deleted(**kwargs):
    trace(kwargs)


@kopf.on.resume(GROUP, "widgets")
def resumed(**kwargs):
    trace(kwargs)


@kopf.on.resume(GROUP, "widgets", deleted=True)
async def resumed_even_deleted(**kwargs):
    trace(kwargs)
