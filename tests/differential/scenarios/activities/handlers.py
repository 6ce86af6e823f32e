"""Startup and cleanup handlers, of which some fail; probes, of which one fails."""

import datetime

import kopf
from tracer import GROUP, trace


@kopf.on.startup()
def first(**kwargs):
    trace(kwargs)


@kopf.on.startup(retries=5, param="p")
async def flaky(retry, **kwargs):
    trace({**kwargs, "retry": retry})
    if retry < 2:
        raise kopf.TemporaryError("not started yet", delay=0.5)


@kopf.on.cleanup()
def bye(**kwargs):
    trace(kwargs)


@kopf.on.cleanup(errors=kopf.ErrorsMode.PERMANENT)
async def failing_bye(**kwargs):
    trace(kwargs)
    raise RuntimeError("cleanup failed")


@kopf.on.probe(id="static")
def static_probe(**kwargs):
    trace(kwargs)
    return {"ok": True}


@kopf.on.probe(id="now")
async def time_probe(**_):
    return datetime.datetime(2020, 1, 2, 3, 4, 5, tzinfo=datetime.UTC).isoformat()


@kopf.on.probe(id="failing")
def failing_probe(**_):
    raise kopf.PermanentError("unknown")


@kopf.on.create(GROUP, "widgets")
def created(**kwargs):
    trace(kwargs)
