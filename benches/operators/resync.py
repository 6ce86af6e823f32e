"""W2: objects that were handled before are seen at the start."""

import kopf
from reporting import GROUP, saw, traced


@kopf.on.create(*GROUP)
@traced
async def bench_create(name, **_):
    return {"ok": True, "name": name}


@kopf.on.update(*GROUP)
@traced
async def bench_update(**_):
    pass


@kopf.on.delete(*GROUP, optional=True)
@traced
async def bench_delete(**_):
    pass


@kopf.on.event(*GROUP)
@traced
async def bench_event(name, spec, **_):
    saw(name, spec["rev"])
