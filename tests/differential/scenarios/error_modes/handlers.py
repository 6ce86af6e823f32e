"""Creation handlers that fail with each error mode, and with limits of retries and of time."""

import kopf
from tracer import GROUP, trace

KIND = (GROUP, "widgets")


@kopf.on.startup()
def configure(settings, **_):
    settings.execution.default_backoff = 1


@kopf.on.create(*KIND, errors=kopf.ErrorsMode.IGNORED)
def ignored(**kwargs):
    trace(kwargs)
    raise RuntimeError("ignored")


@kopf.on.create(*KIND, errors=kopf.ErrorsMode.PERMANENT)
async def permanent(**kwargs):
    trace(kwargs)
    raise RuntimeError("arbitrary but permanent")


@kopf.on.create(*KIND)
def explicit(**kwargs):
    trace(kwargs)
    raise kopf.PermanentError("by own will")


@kopf.on.create(*KIND, errors=kopf.ErrorsMode.TEMPORARY, retries=2, backoff=0.7)
def limited(**kwargs):
    trace(kwargs)
    raise KeyError("limited")


@kopf.on.create(*KIND)
def recovering(retry, **kwargs):
    trace({**kwargs, "retry": retry})
    if not retry:
        raise OSError("default backoff")
    return "recovered"


@kopf.on.create(*KIND, timeout=1.5, backoff=1)
def timing_out(**kwargs):
    trace(kwargs)
    raise RuntimeError("")


@kopf.on.create(*KIND)
def last(**kwargs):
    trace(kwargs)
