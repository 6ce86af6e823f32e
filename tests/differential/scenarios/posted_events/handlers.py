"""Handlers that post Kubernetes events in all ways, with settings of the reporter."""

import logging

import kopf
from tracer import GROUP, trace


@kopf.on.startup()
def configure(settings, **_):
    settings.posting.level = logging.INFO
    settings.posting.reporting_component = "differential"
    settings.posting.reporting_instance = "instance"
    settings.posting.event_name_prefix = "diff-"


@kopf.on.create(GROUP, "widgets")
def created(body, logger, **kwargs):
    trace({**kwargs, "body": body, "logger": logger})
    kopf.event(body, type="Normal", reason="Custom", message="a custom event")
    kopf.info(body, reason="Info", message="an info")
    kopf.warn(body, reason="Warn", message="a warning")
    try:
        raise ValueError("caught")
    except ValueError:
        kopf.exception(body, reason="Exc", message="while trying:")
        kopf.exception(body)
    kopf.info(body, reason="Long", message="head " + "x" * 2000 + " tail")
    kopf.info(
        [
            body,
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "other", "namespace": kwargs["namespace"], "uid": "u"},
            },
        ],
        reason="Both",
    )
    logger.info("logged, but not posted")


@kopf.on.update(GROUP, "widgets")
async def updated(body, **kwargs):
    trace({**kwargs, "body": body})
    kopf.info(body, reason="Async", message="from a coroutine")
    raise kopf.PermanentError("an error in the log only")
