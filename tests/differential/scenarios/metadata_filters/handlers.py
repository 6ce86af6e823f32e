"""Handlers that are filtered by labels and annotations."""

import kopf
from tracer import GROUP, trace


def longer_than_two(value, **_):
    return value is not None and len(value) > 2


@kopf.on.create(GROUP, "widgets", labels={"tier": "gold"})
def by_value(**kwargs):
    trace(kwargs)


@kopf.on.create(GROUP, "widgets", labels={"tier": kopf.PRESENT}, annotations={"skip": kopf.ABSENT})
def by_presence(**kwargs):
    trace(kwargs)


@kopf.on.create(GROUP, "widgets", labels={"tier": longer_than_two})
def by_callable(**kwargs):
    trace(kwargs)


@kopf.on.create(GROUP, "widgets", annotations={"skip": kopf.not_(longer_than_two), "note": kopf.PRESENT})
def by_negated_callable(**kwargs):
    trace(kwargs)


@kopf.on.update(GROUP, "widgets", labels={"tier": "gold", "zone": "north"})
def by_two_labels(**kwargs):
    trace(kwargs)


@kopf.on.delete(GROUP, "widgets", labels={"protect": "yes"})
def guarded(**kwargs):
    trace(kwargs)
