"""Handlers of kinds that do not exist at the start, by their names and by a category."""

import kopf
from tracer import GROUP, trace


@kopf.on.create(GROUP, "widgets")
def created(**kwargs):
    trace(kwargs)
    return "made"


@kopf.on.event(
    GROUP, "widgets", when=lambda type, **_: type != "DELETED"
)  # not always seen with the kind's deletion
def seen(**kwargs):
    trace(kwargs)


@kopf.on.create(category="toys", group=GROUP)
def toy_created(**kwargs):
    trace(kwargs)
