"""Creation, update and deletion handlers with results."""

import kopf
from tracer import GROUP, trace


@kopf.on.create(GROUP, "v1", "widgets")
def created(**kwargs):
    trace(kwargs)
    return {"size": kwargs["spec"].get("size"), "by": "created"}


@kopf.on.create(GROUP, "v1", "widgets", param={"n": 2})
async def created_async(**kwargs):
    trace(kwargs)
    return "plain result"


@kopf.on.update(GROUP, "v1", "widgets")
def updated(**kwargs):
    trace(kwargs)
    return len(kwargs["diff"])


@kopf.on.delete(GROUP, "v1", "widgets")
def deleted(**kwargs):
    trace(kwargs)
    return "not visible"
