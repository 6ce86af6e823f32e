"""Handlers that are filtered by values of fields and by callbacks."""

import kopf
from tracer import GROUP, trace

KIND = (GROUP, "widgets")


def is_even(value, **_):
    return isinstance(value, int) and value % 2 == 0


@kopf.on.update(*KIND, field="spec.n", old=1, new=2)
def from_one_to_two(**kwargs):
    trace(kwargs)


@kopf.on.update(*KIND, field="spec.n", new=is_even)
def to_even(**kwargs):
    trace(kwargs)


@kopf.on.field(*KIND, field="spec.n", old=is_even)
def from_even(**kwargs):
    trace(kwargs)


@kopf.on.field(*KIND, field="spec.flag", value=kopf.PRESENT)
def flag_involved(**kwargs):
    trace(kwargs)


@kopf.on.update(*KIND, field="spec.flag", old=kopf.PRESENT, new=kopf.ABSENT)
def flag_removed(**kwargs):
    trace(kwargs)


@kopf.on.create(*KIND, when=lambda spec, **_: spec.get("n", 0) > 0)
def created_positive(**kwargs):
    trace(kwargs)


@kopf.on.create(
    *KIND, when=kopf.all_([lambda name, **_: name.startswith("w"), lambda spec, **_: "flag" in spec])
)
def created_with_flag(**kwargs):
    trace(kwargs)


@kopf.on.update(
    *KIND, when=kopf.none_([lambda diff, **_: len(diff) > 1, lambda labels, **_: "quiet" in labels])
)
def single_change(**kwargs):
    trace(kwargs)


@kopf.on.create(*KIND, field="spec.flag", value="on")
def created_on(**kwargs):
    trace(kwargs)
