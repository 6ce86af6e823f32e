"""An operator in a leader election with short durations, which records the calls of its handlers."""

import asyncio
import json
import os
import time

import kopf
from replica_durations import DURATIONS

OPTIONS = json.loads(os.environ["REPLICA_OPTIONS"])
FILE = os.open(OPTIONS["calls"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(what, handler, name, number):
    """Note a step of a call; one write, so that lines stay complete."""
    leadership = kopf.leadership()
    term = leadership.term if leadership is not None else None
    line = [time.monotonic(), OPTIONS["identity"], term, what, handler, name, number]
    os.write(FILE, (json.dumps(line) + "\n").encode())
    return term


@kopf.on.login()
def login(**_):
    return kopf.ConnectionInfo(server=OPTIONS["server"], token=OPTIONS["token"], insecure=True)


@kopf.on.startup()
def configure(settings, **_):
    leadership = settings.leadership
    leadership.enabled, leadership.name, leadership.namespace = True, "parcels-operator", "default"
    leadership.identity = OPTIONS["identity"]
    for name, seconds in {**DURATIONS, **OPTIONS.get("durations", {})}.items():
        setattr(leadership, name, seconds)
    settings.health.loop_limit = 1.5
    settings.networking.error_backoffs = [0.1, 0.2]
    settings.networking.request_timeout = 2
    settings.networking.connect_timeout = 1
    settings.watching.inactivity_timeout = 2
    # The request log has the writer of each request.
    settings.client.headers = {"Impersonate-User": OPTIONS["identity"], "Impersonate-Group": "system:masters"}


@kopf.on.create("parcels")
@kopf.on.update("parcels", field="spec.number")
async def handle(name, spec, patch, retry, **_):
    number = spec["number"]
    term = note("begin", "handle", name, number)
    if number % 4 == 1 and retry == 0 and not OPTIONS.get("is_steady"):
        raise kopf.TemporaryError("once more", delay=0.1)
    if term == spec.get("freezes_in_term"):
        time.sleep(120)  # blocks the event loop
    await asyncio.sleep(spec.get("seconds", 0))
    patch.status["handle"] = number
    patch.status["term"] = term
    note("end", "handle", name, number)


def check(name, spec, patch, **_):
    number = spec["number"]
    term = note("begin", "check", name, number)
    time.sleep(spec.get("blocks", 0.02))
    patch.status["check"] = number
    patch.status["term"] = term
    note("end", "check", name, number)


async def watch_over(name, stopped, **_):
    note("begin", "watch_over", name, 0)
    await stopped.wait()
    note("stopped", "watch_over", name, 0)


# Objects without daemons are idle once they are handled.
if not OPTIONS.get("is_light"):
    kopf.on.update("parcels", field="spec.number")(check)
    kopf.on.create("parcels")(check)
    kopf.daemon("parcels")(watch_over)
