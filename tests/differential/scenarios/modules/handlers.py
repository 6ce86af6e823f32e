"""The first of several files of one operator."""

import kopf
from tracer import GROUP, record, trace

record("loaded", module="handlers", name=__name__)


@kopf.on.create(GROUP, "widgets")
def in_main_file(**kwargs):
    trace(kwargs)
