"""W6: when a handler starts."""

import kopf
from reporting import GROUP, is_probe, report, saw, traced


@kopf.on.event(*GROUP)
@traced
async def bench_event(name, **_):
    saw(name, 0)


@kopf.on.create(*GROUP, when=lambda name, **_: not is_probe(name))
@traced
async def bench_create(name, **_):
    report("start", name=name)
    return {"ok": True, "name": name}
