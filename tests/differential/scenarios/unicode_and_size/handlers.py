"""Handlers that copy arbitrary values of the spec into the status."""

import kopf
from tracer import GROUP, trace


@kopf.on.startup()
def configure(settings, **_):  # such names of fields are impossible in the keys of annotations
    settings.persistence.progress_storage = kopf.StatusProgressStorage()


@kopf.on.create(GROUP, "widgets")
def created(patch, spec, **kwargs):
    patch.status["copy"] = {key: spec[key] for key in spec if key != "big"}
    patch.meta.annotations["example.dev/note"] = "значение 🚀"
    trace(
        {**kwargs, "patch": patch, "spec": spec},
        types={key: type(value).__name__ for key, value in spec.items()},
    )
    return "résultat ✓"


@kopf.on.update(GROUP, "widgets")
def updated(**kwargs):
    trace(kwargs, lengths=sorted(len(str(item[3])) for item in kwargs["diff"]))


@kopf.on.field(GROUP, "widgets", field="spec.ключ")
async def localized(**kwargs):
    trace(kwargs)
