"""A valid operator, for options that are not valid."""

import kopf
from tracer import GROUP, trace


@kopf.on.create(GROUP, "widgets")
def created(**kwargs):
    trace(kwargs)
