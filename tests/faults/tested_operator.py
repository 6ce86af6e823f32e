"""The operator under test, run by any interpreter with any Kopf. Its handlers report to the test over a
socket.

Both directions use lines of JSON: calls of handlers to the test, sent before Kopf knows their outcomes;
queries and commands from the test.
"""

import collections
import contextlib
import gc
import hashlib
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
    """State that is set by the commands of the test."""

    def __init__(self):
        self.slowness = float(OPTIONS.get("slowness", 0))
        self.token = OPTIONS.get("token", "first")
        self.login_seconds = float(OPTIONS.get("login_seconds", 0))
        self.logins = 0
        self.daemons = collections.Counter()
        self.memos = weakref.WeakValueDictionary()
        self.index = None


state, lock, reporting = State(), threading.Lock(), threading.Lock()


def report(**values):
    with reporting, contextlib.suppress(OSError):
        PEER.sendall(json.dumps(values).encode() + b"\n")


def short(essence):
    """The spec, without long values, and a digest of the metadata: a change may be only there."""
    spec = (essence or {}).get("spec")
    if spec is None:
        return None
    texts = {key: json.dumps(value, sort_keys=True) for key, value in spec.items()}
    values = {key: spec[key] if len(text) < 200 else f"{len(text)} characters" for key, text in texts.items()}
    metadata = json.dumps(essence.get("metadata") or {}, sort_keys=True)
    return {**values, "metadata": hashlib.sha256(metadata.encode()).hexdigest()[:8]}


def called(handler, name, old, new):
    report(call=[handler, name, short(old), short(new)])


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
                report(look=look())
            if "panic" in order:
                from kopf._kopf import inject_panics

                inject_panics(order["panic"], name=order["name"], times=order["times"])
                report(ordered=True)
            for key in ("slowness", "token", "login_seconds"):
                if key in order:
                    setattr(state, key, order[key])


threading.Thread(target=obey, name="obeying", daemon=True).start()


@kopf.on.startup()
def configure(settings, **_):
    overrides = {
        "networking": {"error_backoffs": [0.1, 0.2, 0.4], "request_timeout": 3},
        "queueing": {"error_delays": [0.1, 0.2, 0.5, 1.0]},
        "watching": {"inactivity_timeout": 1.5},
        "persistence": {"consistency_timeout": 1.0},
        "background": {"cancellation_polling": 1.0},
        "posting": {"enabled": False},
    }
    for section, values in overrides.items():
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
    if name == "transformed":
        patch.fns.append(lambda body: body["spec"].update(made=spec.get("value")))
    time.sleep(state.slowness)


@kopf.on.create(KIND, id="second")
@kopf.on.update(KIND, id="second")
def second(name, old, new, spec, **_):
    called("second", name, old, new)
    return {"value": spec.get("value")}


@kopf.on.delete(KIND, id="removal")
def removal(name, **_):
    called("removal", name, None, None)


@kopf.daemon(KIND, id="companion", cancellation_timeout=1)
async def companion(name, stopped, **_):
    with lock:
        state.daemons[name] += 1
    try:
        await stopped.wait()
    finally:
        with lock:
            state.daemons[name] -= 1


@kopf.timer(KIND, id="ticks", interval=0.5, when=lambda name, **_: name == "ticking")
def ticks(patch, status, **_):
    patch.status["ticks"] = status.get("ticks", 0) + 1


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


report(loaded=str(pathlib.Path(kopf.__file__).parent))
