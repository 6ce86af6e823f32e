"""A module of the operator with a relative import."""

import kopf
from tracer import GROUP, record, trace

from .inner import helpers

record("loaded", module="package.main", name=__name__)


@kopf.on.create(GROUP, "widgets")
def in_module(**kwargs):
    trace(kwargs, answer=helpers.ANSWER)
