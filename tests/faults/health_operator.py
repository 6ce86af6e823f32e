"""An operator with short limits of its health checks. Its behaviour is chosen by `HEALTH_OPTIONS`."""

import asyncio
import ctypes
import gc
import json
import os
import pathlib
import time

import kopf
from kopf._runtime.bridge import Bridge

OPTIONS = json.loads(os.environ["HEALTH_OPTIONS"])
MARKS = pathlib.Path(OPTIONS["folder"])


def mark(name):
    (MARKS / name).write_text(repr(time.time()))


@kopf.on.login()
def login(**_):
    return kopf.ConnectionInfo(server=OPTIONS["server"], token="secret")


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_):
    settings.watching.inactivity_timeout = 1.5
    settings.watching.connect_timeout = 1.5
    settings.networking.request_timeout = 3
    settings.networking.error_backoffs = [0.2]
    settings.networking.login_timeout = OPTIONS.get("login_timeout", 60)
    for name, limit in OPTIONS.get("limits", {}).items():
        setattr(settings.health, name, limit)
    mark("starting")
    while OPTIONS.get("is_slow") and not (MARKS / "go").exists():
        await asyncio.sleep(0.05)


@kopf.on.event("widgets")
def noticed(**_):
    pass


@kopf.on.create("widgets")
async def create(name, spec, **_):
    mark(f"begin-{name}")
    if name == "sleeps":
        time.sleep(spec["seconds"])
    if name == "holds":
        # Functions of `PyDLL` keep the GIL.
        ctypes.PyDLL(None).sleep(int(spec["seconds"]))
    mark(f"end-{name}")


@kopf.on.create("widgets", labels={"plant": "border"})
def plant(**_):
    # Python does not take the tasks of the engine, but its event loop runs.
    for bridge in [it for it in gc.get_objects() if type(it) is Bridge]:
        bridge._loop.call_soon_threadsafe(bridge._loop.remove_reader, bridge._fileno)


if OPTIONS.get("watches_configmaps"):
    kopf.on.event("configmaps")(noticed)
