"""W4: a handler of events of config maps."""

import kopf
from reporting import saw, traced


@kopf.on.event("v1", "configmaps")
@traced
async def bench_event(name, body, **_):
    saw(name, int(body.get("data", {}).get("rev", 0)))
