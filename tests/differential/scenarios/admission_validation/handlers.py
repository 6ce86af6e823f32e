"""Validating handlers for all operations, one, and one field; a server with a given certificate."""

import os

import kopf
from tracer import GROUP, TOKEN, trace


@kopf.on.startup()
def configure(settings, **_):
    settings.admission.server = kopf.WebhookServer(
        addr="127.0.0.1",
        host="127.0.0.1",
        certfile=os.environ["WEBHOOK_CERT"],
        pkeyfile=os.environ["WEBHOOK_KEY"],
    )
    settings.admission.managed = f"{TOKEN}.example.dev"


@kopf.on.validate(GROUP, "widgets", operations=["CREATE", "UPDATE"])
def check_size(spec, warnings, **kwargs):
    if spec.get("size", 0) > 5:
        warnings.append("it is quite big")
    trace({**kwargs, "spec": spec, "warnings": warnings})
    if spec.get("size", 0) > 10:
        raise kopf.AdmissionError("too big", code=413)


@kopf.on.validate(GROUP, "widgets", id="delete-check", operation="DELETE")
async def check_deletion(labels, **kwargs):
    trace({**kwargs, "labels": labels})
    if "locked" in labels:
        raise kopf.AdmissionError("it is locked")


@kopf.on.validate(GROUP, "widgets", field="spec.owner", value=kopf.PRESENT)
def check_owner(**kwargs):
    trace(kwargs)
    raise kopf.PermanentError("no owners, please")


@kopf.on.create(GROUP, "widgets")
def created(**kwargs):
    trace(kwargs)
