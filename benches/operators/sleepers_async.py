"""W8A: a handler in the event loop that takes 0.1 s."""

import asyncio

import kopf
from reporting import GROUP, is_probe, saw, traced


@kopf.on.event(*GROUP)
@traced
async def bench_event(name, **_):
    saw(name, 0)


@kopf.on.create(*GROUP, when=lambda name, **_: not is_probe(name))
@traced
async def bench_create(name, **_):
    await asyncio.sleep(0.1)
    return {"ok": True, "name": name}
