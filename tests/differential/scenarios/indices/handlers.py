"""Indices with dicts and plain values, of two kinds; handlers and filters that read them."""

import kopf
from tracer import GROUP, trace


@kopf.index(GROUP, "widgets")
def by_color(spec, name, **_):
    return {spec.get("color", "none"): name}


@kopf.index(GROUP, "widgets", labels={"listed": "yes"})
async def plain_values(name, **_):
    return name


@kopf.index("", "v1", "configmaps", labels={"indexed": "yes"})
def settings_by_key(body, name, namespace, **_):
    return {(namespace, key): value for key, value in (body.get("data") or {}).items()}


@kopf.on.create(GROUP, "gadgets")
def look_up(**kwargs):
    trace(kwargs)


@kopf.on.update(GROUP, "gadgets", when=lambda by_color, spec, **_: spec.get("color") in by_color)
def only_if_indexed(**kwargs):
    trace(kwargs)
