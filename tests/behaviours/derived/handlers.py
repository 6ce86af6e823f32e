"""All handlers select golden widgets. The tests choose whether the selector is sent to the API server."""

import kopf

GOLDEN = {"tier": "gold"}


@kopf.on.startup()
def configure(settings, memo, **_):
    settings.watching.derived_selectors = memo.derived


@kopf.index("widgets", labels=GOLDEN)
def sizes(name, spec, **_):
    return {name: spec["size"]}


@kopf.on.event("widgets", labels=GOLDEN)
def seen(memo, type, name, sizes, **_):
    memo.calls.append(("seen", name, type, sorted(sizes)))


@kopf.on.create("widgets", labels=GOLDEN)
def made(memo, name, **_):
    memo.calls.append(("made", name))


@kopf.on.update("widgets", labels=GOLDEN)
def changed(memo, name, spec, **_):
    memo.calls.append(("changed", name, spec["size"]))


@kopf.on.delete("widgets", labels=GOLDEN)
def unmade(memo, name, **_):
    memo.calls.append(("unmade", name))


@kopf.daemon("widgets", labels=GOLDEN, cancellation_backoff=600)
def guard(memo, name, stopped, **_):
    memo.calls.append(("guarded", name))
    stopped.wait()
    memo.calls.append(("asked", name, str(stopped.reason)))
    memo.gate.wait()
    memo.calls.append(("left", name))
