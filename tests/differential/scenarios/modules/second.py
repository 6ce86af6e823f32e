"""The second file of the operator; it imports a module of its folder."""

import kopf
import neighbour
from tracer import GROUP, record, trace

record("loaded", module="second", name=__name__)


@kopf.on.create(GROUP, "widgets")
def in_second_file(**kwargs):
    trace(kwargs, neighbour=neighbour.VALUE)


@kopf.on.create(GROUP, "widgets")
def in_main_file(**kwargs):
    trace(kwargs, fn="a namesake")
