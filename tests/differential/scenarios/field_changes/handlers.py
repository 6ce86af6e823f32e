"""Handlers of fields: a scalar, a dict, a list, labels, an annotation."""

import kopf
from tracer import GROUP, trace

KIND = (GROUP, "v1", "widgets")


@kopf.on.field(*KIND, field="spec.replicas")
def replicas(**kwargs):
    trace(kwargs)


@kopf.on.field(*KIND, field="spec.template.labels")
def nested_dict(**kwargs):
    trace(kwargs)


@kopf.on.field(*KIND, field=("spec", "items"))
async def whole_list(**kwargs):
    trace(kwargs)
    return "list handled"


@kopf.on.field(*KIND, field="metadata.labels")
def all_labels(**kwargs):
    trace(kwargs)


@kopf.on.field(*KIND, field="metadata.annotations.watched")
def one_annotation(**kwargs):
    trace(kwargs)
