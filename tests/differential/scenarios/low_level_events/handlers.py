"""Event handlers: of all events, of labelled objects, and a failing one."""

import kopf
from tracer import GROUP, trace


@kopf.on.event(GROUP, "widgets")
def any_event(**kwargs):
    trace(kwargs)


@kopf.on.event(GROUP, "widgets", labels={"watch": "yes"}, id="labelled")
async def labelled_only(**kwargs):
    trace(kwargs)
    return {"result of": "an event handler"}


@kopf.on.event(GROUP, "widgets", field="spec.fail", value=True)
def failing(**kwargs):
    trace(kwargs)
    raise ValueError("event handlers are never retried")
