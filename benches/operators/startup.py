"""W1: the first call."""

import kopf
from reporting import GROUP, saw


@kopf.on.event(*GROUP)
async def bench_event(name, **_):
    saw(name, 0)
