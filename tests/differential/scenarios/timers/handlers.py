"""Timers: regular, delayed, failing, and without an interval."""

import kopf
from tracer import GROUP, trace


@kopf.timer(GROUP, "widgets", interval=1)
def regular(**kwargs):
    trace(kwargs)


@kopf.timer(GROUP, "widgets", interval=0.8, initial_delay=2, labels={"late": "yes"})
async def delayed(**kwargs):
    trace(kwargs)


@kopf.timer(GROUP, "widgets", interval=20, labels={"retry": "yes"})
def failing(retry, patch, **kwargs):
    trace({**kwargs, "retry": retry})
    if retry < 2:
        raise kopf.TemporaryError("soon", delay=1)
    patch.status["timer"] = f"done in {retry + 1} attempts"
    return {"retry": retry}


@kopf.timer(GROUP, "widgets", initial_delay=0.5, labels={"once": "yes"})
def only_once(**kwargs):
    trace(kwargs)
    return "no interval, no repetition"
