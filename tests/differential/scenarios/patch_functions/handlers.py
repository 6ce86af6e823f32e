"""Handlers that append transformation functions to the patch."""

import kopf
from tracer import GROUP, trace


def append_item(body, /):
    items = body.setdefault("spec", {}).setdefault("items", [])
    if "from function" not in items:
        items.append("from function")


def count_in_status(body, /):
    status = body.setdefault("status", {})
    status["functions"] = status.get("functions", 0) or 1
    status.setdefault("conditions", []).append({"type": "Ready"}) if not status.get("conditions") else None


def own_finalizer(body, /):
    finalizers = body["metadata"].setdefault("finalizers", [])
    if "example.dev/own" not in finalizers:
        finalizers.insert(0, "example.dev/own")


def drop_finalizer(body, /):
    body["metadata"]["finalizers"] = [
        f for f in body["metadata"].get("finalizers", []) if f != "example.dev/own"
    ]


@kopf.on.create(GROUP, "widgets")
def created(patch, **kwargs):
    patch.fns.append(append_item)
    patch.fns.append(count_in_status)
    patch.fns.append(own_finalizer)
    patch.status["merged"] = "too"
    trace({**kwargs, "patch": patch})


@kopf.on.update(GROUP, "widgets", field="spec.touch")
def touched(patch, **kwargs):
    patch.fns.append(append_item)  # nothing to change anymore
    trace({**kwargs, "patch": patch})


@kopf.on.delete(GROUP, "widgets")
def deleted(patch, **kwargs):
    patch.fns.append(drop_finalizer)
    trace({**kwargs, "patch": patch})
