"""Handlers that wait: for attempts, intervals, idleness, or their end. The spec selects them."""

import asyncio

import kopf


def record(memo, *call):
    memo.calls.append(call)


@kopf.on.startup()
def configure(memo, settings, **_):
    memo.get("configure", lambda _: None)(settings)


@kopf.on.create("widgets", when=lambda spec, **_: "delays" in spec)
def patient(spec, retry, memo, runtime, **_):
    record(memo, "patient", retry, round(runtime.total_seconds()))
    delays = spec["delays"]
    if retry < len(delays):
        raise kopf.TemporaryError("not yet", delay=delays[retry])


@kopf.on.create("widgets", when=lambda spec, **_: "hours" in spec, timeout=3600, backoff=600)
def limited_in_time(memo, **_):
    record(memo, "limited_in_time", None)
    raise ValueError("boo")


@kopf.on.create("widgets", when=lambda spec, **_: "tries" in spec, retries=3, backoff=86_400)
async def limited_in_tries(memo, **_):
    record(memo, "limited_in_tries", None)
    raise ValueError("boo")


@kopf.timer("widgets", when=lambda spec, **_: "interval" in spec, interval=60, initial_delay=10)
def steady(memo, **_):
    record(memo, "steady", None)


@kopf.timer("widgets", when=lambda spec, **_: "idle" in spec, idle=300, interval=60)
async def when_idle(memo, **_):
    record(memo, "when_idle", None)


@kopf.daemon("widgets", when=lambda spec, **_: "watch" in spec)
async def watchman(stopped, memo, **_):
    while not stopped:
        record(memo, "watchman", None)
        await stopped.wait(3600)
    record(memo, "watchman_ended", stopped.reason)


@kopf.daemon("widgets", when=lambda spec, **_: "guard" in spec)
def guard(stopped, memo, **_):
    while not stopped.wait(3600):
        record(memo, "guard", None)


@kopf.daemon(
    "widgets", when=lambda spec, **_: "stubborn" in spec, cancellation_backoff=100, cancellation_timeout=1000
)
async def stubborn(memo, **_):
    record(memo, "stubborn", None)
    for _ in range(memo.rounds):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            record(memo, "stubborn_stopped", None)


@kopf.on.create("widgets", when=lambda spec, **_: "gate" in spec)
def gated(spec, memo, **_):
    record(memo, "gated", spec["gate"])
    memo.gate.wait(10)
