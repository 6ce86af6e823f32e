"""An operator with handlers of all kinds and filters, which append their calls to the file in `CALLS`."""

import os
import pathlib

import kopf

LONG = 100_000


def record(handler):
    calls = os.environ.get("CALLS")
    if calls:
        with pathlib.Path(calls).open("a") as file:
            file.write(f"{handler}\n")


def is_audited(spec, **_):
    return bool(spec.get("audited"))


def is_odd(value, **_):
    return value == "odd"


@kopf.on.create("widgets")
def create_site(**_):
    record("create_site")


@kopf.on.field("widgets", field="spec.domain")
def publish(spec, **_):
    record("publish/spec.domain")
    if spec.get("publish") == "later":
        raise kopf.TemporaryError("HTTP 503 from the CDN", delay=LONG)


@kopf.on.update("widgets")
def notify(**_):
    record("notify")


@kopf.on.update("widgets", annotations={"example.com/archive": kopf.PRESENT})
def archive(**_):
    record("archive")


@kopf.on.update("widgets", when=is_audited)
@kopf.on.create("widgets", when=is_audited)
def audit(**_):
    record("audit")


@kopf.on.update("widgets", field="spec.size", old=1, new=lambda value, **_: value == 2)
def grow(**_):
    record("grow/spec.size")


@kopf.on.resume("widgets")
def resume(**_):
    record("resume")


@kopf.on.delete("widgets", labels={"kept": "yes"})
def release(**_):
    record("release")


@kopf.on.event("widgets", labels={"number": is_odd})
def log_event(**_):
    record("log_event")


@kopf.index("widgets", field="spec.domain", value="blog.example.com")
def by_domain(name, **_):
    record("by_domain")
    return {name: name}


@kopf.daemon("widgets", labels={"number": is_odd})
async def keepalive(stopped, **_):
    record("keepalive")
    await stopped.wait(LONG)


@kopf.timer("widgets", interval=LONG, labels={"tier": "gold"})
def refresh(**_):
    record("refresh")


@kopf.on.create("gadgets")
def of_another_kind(**_):
    record("of_another_kind")
