"""Daemons as coroutines and in threads, with several ways to end."""

import asyncio

import kopf
from tracer import GROUP, record, trace


@kopf.daemon(GROUP, "widgets", cancellation_timeout=1)
async def patient(stopped, name, **kwargs):
    trace({**kwargs, "stopped": stopped, "name": name})
    while not stopped:
        await stopped.wait(10)
    trace({**kwargs, "stopped": stopped, "name": name}, exiting=True)


@kopf.daemon(GROUP, "widgets", cancellation_timeout=1, labels={"daemon": "sleepy"})
async def cancelled(name, **kwargs):
    trace({**kwargs, "name": name})
    try:
        await asyncio.sleep(100)
    except asyncio.CancelledError:
        record("cancellation", of=name)
        raise


@kopf.daemon(GROUP, "widgets", labels={"daemon": "sync"}, cancellation_backoff=0.5, cancellation_timeout=3)
def in_thread(stopped, name, patch, **kwargs):
    trace({**kwargs, "stopped": stopped, "name": name, "patch": patch})
    while not stopped:
        stopped.wait(0.1)
    trace({**kwargs, "stopped": stopped, "name": name, "patch": patch}, exiting=True)


@kopf.daemon(GROUP, "widgets", labels={"daemon": "short"})
async def finite(name, patch, **kwargs):
    trace({**kwargs, "name": name})
    await asyncio.sleep(0.5)
    patch.status["finite"] = "patched on exit"
    return {"finished": name}
