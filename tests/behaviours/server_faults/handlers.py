"""Handles widgets on a faulty API server."""

import kopf


@kopf.on.create("widgets")
@kopf.on.update("widgets")
def handle(memo, spec, **_):
    memo.calls.append(("handle", spec.get("size")))
    return {"size": spec.get("size")}


@kopf.on.startup()
def hurry(settings, **_):
    settings.networking.error_backoffs = [0.05] * 5
    settings.queueing.error_delays = [0.05]
