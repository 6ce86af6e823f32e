"""Handlers with storages in the status, and with another finalizer."""

import kopf
from tracer import GROUP, trace


@kopf.on.startup()
def configure(settings, **_):
    settings.persistence.finalizer = "example.dev/guard"
    settings.persistence.progress_storage = kopf.StatusProgressStorage(field="status.handling.progress")
    settings.persistence.diffbase_storage = kopf.StatusDiffBaseStorage(field="status.handling.base")


@kopf.on.create(GROUP, "widgets")
def one(**kwargs):
    trace(kwargs)


@kopf.on.create(GROUP, "widgets")
def two(retry, **kwargs):
    trace({**kwargs, "retry": retry})
    if not retry:
        raise kopf.TemporaryError("keep the progress for a while", delay=3)


@kopf.on.update(GROUP, "widgets")
@kopf.on.delete(GROUP, "widgets")
def later(**kwargs):
    trace(kwargs)
