"""W7D: daemons which wake up every second."""

import asyncio

import kopf
from reporting import EXPECTED, GROUP, once, saw, traced

running = set()


@kopf.on.event(*GROUP)
@traced
async def bench_event(name, **_):
    saw(name, 0)


@kopf.daemon(*GROUP)
@traced
async def bench_daemon(name, stopped, **_):
    running.add(name)
    if len(running) == EXPECTED:
        once("window_start")
    while not stopped:
        await asyncio.sleep(1.0)
