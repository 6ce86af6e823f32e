"""W1: the first call."""

import kopf
from reporting import GROUP, saw, traced


@kopf.on.event(*GROUP)
@traced
async def bench_event(name, **_):
    saw(name, 0)
