"""Handlers that both operators have."""

import kopf
from tracer import GROUP, trace


@kopf.on.create(GROUP, "widgets")
def created(**kwargs):
    trace(kwargs)


@kopf.on.resume(GROUP, "widgets")
def resumed(**kwargs):
    trace(kwargs)


@kopf.on.update(GROUP, "widgets")
def updated(**kwargs):
    trace(kwargs)
