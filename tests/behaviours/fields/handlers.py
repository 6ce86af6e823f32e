"""Handles one field of widgets."""

import kopf


@kopf.on.field("widgets", field="spec.size")
def resized(memo, old, new, diff, **_):
    memo.calls.append(("resized", old, new))


@kopf.on.update("widgets", field="spec.size", old=1, new=kopf.PRESENT)
def grown(memo, new, **_):
    memo.calls.append(("grown", new))


@kopf.on.create("widgets", field="spec.colour", value="red")
def red(memo, name, **_):
    memo.calls.append(("red", name))
