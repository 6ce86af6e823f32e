"""Handlers that store the last spec, and a slow one for another kind."""

import time

import kopf
from tracer import GROUP, record, trace


@kopf.on.create(GROUP, "widgets")
def created(spec, patch, **kwargs):
    trace({**kwargs, "spec": spec})
    patch.status["last"] = spec["n"]


@kopf.on.update(GROUP, "widgets")
def updated(spec, patch, **kwargs):
    trace({**kwargs, "spec": spec})
    time.sleep(0.05)
    patch.status["last"] = spec["n"]


@kopf.on.create(GROUP, "gadgets")
def slow(name, **kwargs):
    record("enter", object=name)
    time.sleep(1)
    record("leave", object=name)
