"""The operator under test, run by any interpreter with any kopf. It owns the handlers, and what they tell
the test by the socket that it was given; it must not know of faults.

Lines of JSON go both ways: calls of handlers to the test, before their outcomes are known to the framework;
questions and orders from it.
"""

import collections
import contextlib
import gc
import json
import os
import pathlib
import socket
import threading
import time
import weakref

import kopf

KIND = "parcels"
OPTIONS = json.loads(os.environ["PARCELS_OPTIONS"])
PEER = socket.socket(fileno=int(os.environ["PARCELS_SOCKET"]))


class State:
    """What the test asks for, and what it sets."""

    def __init__(self):
        self.slowness = float(OPTIONS.get("slowness", 0))
        self.token = OPTIONS.get("token", "first")
        self.login_seconds = float(OPTIONS.get("login_seconds", 0))
        self.logins = 0
        self.daemons = collections.Counter()
        self.memos = weakref.WeakValueDictionary()
        self.index = None


state, lock, telling = State(), threading.Lock(), threading.Lock()


def tell(**news):
    with telling, contextlib.suppress(OSError):
        PEER.sendall(json.dumps(news).encode() + b"\n")


def short(body):
    """The spec, without what is too long to be told."""
    spec = (body or {}).get("spec")
    if spec is None:
        return None
    texts = {key: json.dumps(value, sort_keys=True) for key, value in spec.items()}
    return {key: spec[key] if len(text) < 200 else f"{len(text)} characters" for key, text in texts.items()}


def called(handler, name, old, new):
    tell(call=[handler, name, short(old), short(new)])


def look():
    gc.collect()
    with lock:
        daemons = {name: count for name, count in state.daemons.items() if count > 0}
    names = {"index": list(state.index or ()), "memos": list(state.memos)}
    threads = [thread.name for thread in threading.enumerate()]
    return {"daemons": daemons, "logins": state.logins, "threads": len(threads), **names}


def obey():
    with PEER.makefile("r") as lines:
        for line in lines:
            order = json.loads(line)
            if order.get("look"):
                tell(look=look())
            for key in ("slowness", "token", "login_seconds"):
                if key in order:
                    setattr(state, key, order[key])


threading.Thread(target=obey, name="obeying", daemon=True).start()


@kopf.on.startup()
def configure(settings, **_):
    wanted = {
        "networking": {"error_backoffs": [0.1, 0.2, 0.4], "request_timeout": 3},
        "queueing": {"error_delays": [0.1, 0.2, 0.5, 1.0]},
        "watching": {"inactivity_timeout": 1.5},
        "persistence": {"consistency_timeout": 1.0},
        "background": {"cancellation_polling": 1.0},
        "posting": {"enabled": False},
    }
    for section, values in wanted.items():
        for key, value in values.items():
            if hasattr(getattr(settings, section), key):
                setattr(getattr(settings, section), key, value)
    if "webhooks" in OPTIONS:
        settings.admission.managed = OPTIONS["managed"]
        where = {"addr": "127.0.0.1", "host": "127.0.0.1"}
        settings.admission.server = kopf.WebhookServer(**where, **OPTIONS["webhooks"])


if "server" in OPTIONS:

    @kopf.on.login()
    def login(**_):
        state.logins += 1
        time.sleep(state.login_seconds)
        return kopf.ConnectionInfo(server=OPTIONS["server"], token=state.token)


@kopf.on.create(KIND, id="first")
@kopf.on.update(KIND, id="first")
def first(name, memo, old, new, patch, spec, **_):
    with lock:
        state.memos[name] = memo
    called("first", name, old, new)
    patch.status["first"] = spec.get("value")
    if name == "picky":
        patch.spec["strict"] = "not a number"
    time.sleep(state.slowness)


@kopf.on.create(KIND, id="second")
@kopf.on.update(KIND, id="second")
def second(name, old, new, spec, **_):
    called("second", name, old, new)
    return {"value": spec.get("value")}


@kopf.on.delete(KIND, id="farewell")
def farewell(name, **_):
    called("farewell", name, None, None)


@kopf.daemon(KIND, id="companion", cancellation_timeout=1)
async def companion(name, stopped, **_):
    with lock:
        state.daemons[name] += 1
    try:
        await stopped.wait()
    finally:
        with lock:
            state.daemons[name] -= 1


@kopf.timer(KIND, id="pulse", interval=0.5, when=lambda name, **_: name == "ticking")
def pulse(patch, status, **_):
    patch.status["pulse"] = status.get("pulse", 0) + 1


@kopf.index(KIND, id="known")
def known(name, **_):
    return {name: 1}


@kopf.on.event(KIND, id="peek")
def peek(known, **_):
    state.index = known


if "webhooks" in OPTIONS:

    @kopf.on.validate(KIND, id="gate")
    def gate(spec, **_):
        if spec.get("value") == 13:
            raise kopf.AdmissionError("thirteen is not accepted")


tell(loaded=str(pathlib.Path(kopf.__file__).parent))
