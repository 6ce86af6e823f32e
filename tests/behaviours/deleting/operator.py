"""Holds the deletion of widgets until they are free."""

import kopf


@kopf.on.delete("widgets")
def clean(memo, spec, retry, **_):
    memo.calls.append(("clean", retry))
    if spec.get("busy"):
        raise kopf.TemporaryError("It is busy.", delay=0.05)


@kopf.on.delete("widgets", optional=True)
def notice(memo, **_):
    memo.calls.append(("notice", None))


@kopf.on.create("widgets")
def created(memo, **_):
    memo.calls.append(("created", None))
