"""An operator whose handlers do what the object specifies, for the commands that inspect objects."""

import asyncio

import kopf

SERVED = {"served": kopf.PRESENT}
LONG = 100_000


@kopf.on.create("widgets", labels=SERVED)
@kopf.on.update("widgets", labels=SERVED)
def prepare(spec, **_):
    if spec.get("prepare") == "wait":
        raise kopf.TemporaryError("The volume is not bound", delay=LONG)


@kopf.on.create("widgets", labels=SERVED)
@kopf.on.update("widgets", labels=SERVED)
async def publish(spec, **_):
    match spec.get("publish"):
        case "later":
            raise kopf.TemporaryError("HTTP 503 from the CDN", delay=LONG)
        case "soon":
            raise kopf.TemporaryError("HTTP 503 from the CDN", delay=42)
        case "never":
            raise kopf.PermanentError("Not a domain: 'shop_'")
        case "hang":
            await asyncio.Event().wait()


@kopf.on.delete("widgets", labels=SERVED)
def archive(spec, **_):
    if spec.get("archive") == "wait":
        raise kopf.TemporaryError("The archive is locked", delay=LONG)
