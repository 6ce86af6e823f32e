"""Handlers of a cluster-scoped kind, of all kinds of a group, and of a singular name."""

import kopf
from tracer import GROUP, trace


@kopf.on.create(GROUP, "v1", "realms")
def realm_created(**kwargs):
    trace(kwargs)
    return {"namespace": kwargs["namespace"]}


@kopf.on.update(kopf.EVERYTHING, group=GROUP)
def anything_updated(**kwargs):
    trace(kwargs)


@kopf.on.delete(kind="Realm", group=GROUP)
def realm_deleted(**kwargs):
    trace(kwargs)


@kopf.on.create(singular="widget", group=GROUP)
def widget_created(body, **kwargs):
    trace({**kwargs, "body": body})
    kopf.info(body, reason="Seen")
