"""Handles objects that existed before the operator."""

import kopf


@kopf.on.resume("widgets")
def resumed(memo, name, reason, **_):
    memo.calls.append(("resumed", name))


@kopf.on.create("widgets")
def created(memo, name, **_):
    memo.calls.append(("created", name))


@kopf.on.resume("widgets")
@kopf.on.update("widgets")
def both(memo, name, **_):
    memo.calls.append(("both", name))
