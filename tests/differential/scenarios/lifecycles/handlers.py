"""A default lifecycle that takes the last handlers first, and sub-handlers with other lifecycles."""

import kopf
from tracer import GROUP, record, trace


def last_first(handlers, *, body, **_):
    record("lifecycle", handlers=[h.id for h in handlers], name=body["metadata"]["name"])
    return list(handlers)[::-1][:2]


kopf.set_default_lifecycle(last_first)


@kopf.on.create(GROUP, "widgets")
def one(**kwargs):
    trace(kwargs)


@kopf.on.create(GROUP, "widgets")
def two(retry, **kwargs):
    trace({**kwargs, "retry": retry})
    if not retry:
        raise kopf.TemporaryError("once more", delay=0.5)


@kopf.on.create(GROUP, "widgets")
async def three(**kwargs):
    trace(kwargs)

    async def sub(**kwargs):
        trace(kwargs)

    await kopf.execute(fns={"x": sub, "y": sub, "z": sub}, lifecycle=kopf.lifecycles.one_by_one)


@kopf.on.update(GROUP, "widgets")
async def updated(**kwargs):
    trace(kwargs)

    def sub(param=None, **kwargs):
        trace({**kwargs, "param": param})

    for number in range(3):
        kopf.register(sub, id=f"s{number}", param=number)
    await kopf.execute(lifecycle=kopf.lifecycles.all_at_once)
