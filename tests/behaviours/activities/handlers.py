"""Startup and cleanup, which share a memo with the handlers."""

import kopf


@kopf.on.startup()
async def begin(memo, settings, **_):
    memo.calls.append(("begin", None))
    if memo.get("fail"):
        raise kopf.PermanentError("Not today.")
    settings.persistence.finalizer = "example.com/own-finalizer"


@kopf.on.cleanup()
def end(memo, **_):
    memo.calls.append(("end", None))


@kopf.on.delete("widgets")
def deleted(memo, **_):
    memo.calls.append(("deleted", None))
