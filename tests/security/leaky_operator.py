"""An operator that gets secrets from all possible sources, and fails with most of them."""

import json
import os

import kopf
from planted_secrets import LATER, PASSWORD, PATCHED, PROXY, STALE, TOKEN

OPTIONS = json.loads(os.environ["CARELESS_OPTIONS"])
state = {"logins": 0}


@kopf.on.startup()
def configure(settings, **_):
    settings.networking.error_backoffs = [0.1, 0.1]
    settings.queueing.error_delays = [0.1]
    settings.posting.level = 0
    settings.posting.loggers = True
    settings.admission.server = kopf.WebhookServer(addr="127.0.0.1", port=OPTIONS["port"])
    settings.admission.managed = "careless.example.com"
    if OPTIONS.get("direct"):
        settings.admission.server = kopf.WebhookServer(addr="127.0.0.1", port=OPTIONS["port"], insecure=True)
        settings.admission.managed = None


@kopf.on.login()
def rejected(logger, **_):
    info = kopf.ConnectionInfo(server=OPTIONS["server"], ca_path=OPTIONS["ca"], token=STALE.text, priority=9)
    logger.info(f"Trying {info!r}")
    return info


@kopf.on.login()
def impossible(logger, **_):
    info = kopf.ConnectionInfo(
        server=OPTIONS["server"],
        ca_path=OPTIONS["ca"],
        username="alice",
        password=PASSWORD.text,
        proxy_url=f"http://alice:{PROXY.text}@127.0.0.1:1/",
        priority=8,
    )
    logger.info(f"Trying {info!r} and {[info]}")
    return info if OPTIONS.get("proxied") else None


@kopf.on.login()
def good(logger, **_):
    state["logins"] += 1
    info = kopf.ConnectionInfo(server=OPTIONS["server"], ca_path=OPTIONS["ca"], token=TOKEN.text)
    logger.info(f"Trying {info}")
    return info


@kopf.on.create("secrets", retries=2, backoff=0.1)
def created(body, spec, patch, retry, logger, **_):
    logger.debug("A secret has come.")
    if retry == 0:
        data = body["data"]["key"]
        raise ValueError(f"this has {len(data)} characters")
    patch["data"] = {"more": PATCHED.encoded}


@kopf.on.update("secrets")
def updated(diff, old, new, patch, **_):
    patch.setdefault("data", {})["another"] = PATCHED.encoded
    patch["immutable"] = "this is no boolean, and the server rejects it"
    return {"length": len(diff)}


@kopf.on.delete("secrets")
def deleted(body, **_):
    raise kopf.PermanentError("never mind")


@kopf.on.event("secrets")
def seen(event, body, **_):
    kopf.info(body, reason="Seen", message="It was seen.")
    if event["object"].get("data", {}).get("key") == LATER.encoded:
        raise RuntimeError("no more")


@kopf.index("secrets")
def known(name, body, **_):
    return {name: body["data"]["key"]}


@kopf.daemon("secrets", retries=1)
def watching(body, stopped, patch, **_):
    patch["data"] = {"by-daemon": PATCHED.encoded}
    raise KeyError("it")


@kopf.timer("secrets", interval=0.3)
def ticking(patch, **_):
    patch["immutable"] = "neither is this one"


@kopf.on.probe()
def count(known, **_):
    return len(known)


@kopf.on.validate("secrets", id="review")
def review(body, headers, warnings, name, **_):
    if name == "odd":
        raise ValueError("an error in the review")
    if name == "bad":
        raise kopf.AdmissionError("this one is bad")
