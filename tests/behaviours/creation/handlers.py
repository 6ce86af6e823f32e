"""Records the creation of widgets, in two handlers."""

import kopf


@kopf.on.create("widgets")
def first(memo, spec, name, namespace, body, retry, **_):
    memo.calls.append(("first", {"spec": dict(spec), "name": name, "namespace": namespace, "retry": retry}))
    return {"seen": spec.get("size")}


@kopf.on.create("widgets")
async def second(memo, status, **_):
    memo.calls.append(("second", dict(status)))


@kopf.on.update("widgets")
def changed(memo, **_):
    memo.calls.append(("changed", None))
