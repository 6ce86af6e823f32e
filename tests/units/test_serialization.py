"""Serialization of settings and handlers for the engine."""

import decimal
import enum
import fractions
import itertools
import json
import math
import random

import kopf
import pytest
from kopf._intents import serialization


def fn(**_): ...


def wired(declare):
    registry = kopf.OperatorRegistry()
    declare(registry)
    names = ["_activities", "_indexing", "_watching", "_spawning", "_changing", "_webhooks"]
    (handler,) = [h for name in names for h in getattr(registry, name).get_all_handlers()]
    return serialization.serialize_handler(handler)


@pytest.mark.contract("engine 9.1", "api 2.7")
@pytest.mark.parametrize(
    "name, kind",
    [
        ("event", "watching"),
        ("index", "indexing"),
        ("create", "changing"),
        ("resume", "changing"),
        ("daemon", "daemon"),
        ("timer", "timer"),
        ("validate", "webhook"),
    ],
)
def test_every_kind_of_handlers_is_plain_json(name, kind):
    data = wired(lambda r: getattr(kopf.on, name)("x", field="spec.a", value=kopf.ABSENT, registry=r)(fn))
    assert data["kind"] == kind
    assert data["field"] == ["spec", "a"]
    assert data["value"] == {"absent": True}
    assert data["selector"]["any_name"] == "x"
    assert data["key"] == id(fn)
    json.dumps(data)


def test_activities():
    data = wired(lambda r: kopf.on.login(errors=kopf.ErrorsMode.PERMANENT, registry=r)(fn))
    assert (data["kind"], data["activity"], data["errors"]) == ("activity", "authentication", "permanent")


@pytest.mark.parametrize(
    ("given", "attempts"),
    [
        (None, None),
        (3, 3),
        (3.0, 3),
        (2.5, 3),
        (0.0, 0),
        (-1, 0),
        (-math.inf, 0),
        (math.inf, None),
        (math.nan, None),
        (2**64 - 1, 2**64 - 1),
        (2**64, None),
        (1e30, None),
        (True, 1),
        (decimal.Decimal("2.5"), 3),
        (fractions.Fraction(4, 2), 2),
    ],
)
def test_limits_can_be_any_numbers(given, attempts):
    data = wired(lambda r: kopf.on.create("x", retries=given, registry=r)(fn))
    assert data["retries"] == attempts and type(data["retries"]) in (int, type(None))
    settings = kopf.OperatorSettings()
    settings.queueing.worker_limit = settings.posting.worker_limit = given
    described = serialization.serialize_settings(settings)
    assert described["queueing"]["worker_limit"] == described["posting"]["worker_limit"] == attempts


def test_other_limits_are_left_to_the_engine():
    data = wired(lambda r: kopf.on.create("x", retries="3", registry=r)(fn))
    assert data["retries"] == "3"


def test_integers_of_peering_can_be_floats():
    settings = kopf.OperatorSettings()
    settings.peering.priority, settings.peering.lifetime = -10.0, 60.9
    peering = serialization.serialize_settings(settings)["peering"]
    assert json.dumps([peering["priority"], peering["lifetime"]]) == "[-10, 60]"


@pytest.mark.contract("api 2.6")
def test_filters_of_all_forms():
    labels = {"a": kopf.PRESENT, "b": kopf.ABSENT, "c": lambda *_, **__: True, "d": "v"}
    data = wired(lambda r: kopf.on.update(kopf.EVERYTHING, labels=labels, when=fn, registry=r)(fn))
    assert data["labels"] == [
        ["a", {"present": True}],
        ["b", {"absent": True}],
        ["c", {"callable": True}],
        ["d", {"equal": "v"}],
    ]
    assert data["when"] is True
    assert data["reason"] == "update"
    assert data["selector"]["any_name"] == {"everything": True}


class AnyCase(str):
    def __eq__(self, other):
        return str(other).lower() == self.lower()

    __hash__ = str.__hash__


class Level(enum.IntEnum):
    LOW = 1


class Color(enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    "value", ["x", 1, True, 1.5, ["x", None], {"x": [1]}, Level.LOW, 2**64 - 1, -(2**63)]
)
def test_json_values_are_compared_by_the_engine(value):
    assert serialization.serialize_filter(value) == {"equal": value}


@pytest.mark.parametrize(
    "value",
    [
        *[("x",), {"x"}, [("x",)], {1: 2}, math.nan, b"x", Color.RED, AnyCase("x"), [AnyCase("x")]],
        *[2**64, -(2**63) - 1, {"x": [10**20]}],
    ],
)
def test_other_values_are_compared_in_python(value):
    assert serialization.serialize_filter(value) == {"callable": True}


def test_default_storages_are_known_to_the_engine():
    persistence = serialization.serialize_settings(kopf.OperatorSettings())["persistence"]
    assert [s["type"] for s in persistence["progress_storage"]["storages"]] == ["Annotations", "Status"]
    assert persistence["progress_storage"]["storages"][1]["read_only"] is True
    assert persistence["diffbase_storage"]["type"] == "Annotations"
    json.dumps(persistence)


def test_storages_of_users_are_custom_even_inside_of_ours():
    class Mine(kopf.AnnotationsProgressStorage): ...

    class MyBase(kopf.StatusDiffBaseStorage): ...

    custom = {"type": "Custom"}
    assert serialization.serialize_progress_storage(Mine()) == custom
    assert serialization.serialize_progress_storage(kopf.MultiProgressStorage([Mine()])) == custom
    assert serialization.serialize_diffbase_storage(kopf.MultiDiffBaseStorage([MyBase()])) == custom


@pytest.mark.parametrize("cls", [kopf.AnnotationsDiffBaseStorage, kopf.StatusDiffBaseStorage])
def test_ignored_fields_can_be_changed_after_the_construction(cls):
    storage = cls(ignored_fields=["spec.a"])
    assert storage.ignored_fields == ["spec.a"]
    storage.ignored_fields.append(("metadata", "labels", "x.y/z"))
    storage.ignored_fields.append("spec.replicas")
    described = serialization.serialize_diffbase_storage(storage)
    assert described["ignored_fields"] == [
        ["spec", "a"],
        ["metadata", "labels", "x.y/z"],
        ["spec", "replicas"],
    ]


def test_ignored_fields_of_several_storages_apply_to_each_of_them():
    inner = kopf.StatusDiffBaseStorage(ignored_fields=["spec.b"])
    storage = kopf.MultiDiffBaseStorage([kopf.AnnotationsDiffBaseStorage(), inner])
    storage.ignored_fields.append("spec.a")
    described = serialization.serialize_diffbase_storage(storage)
    assert [nested["ignored_fields"] for nested in described["storages"]] == [
        [["spec", "a"]],
        [["spec", "a"], ["spec", "b"]],
    ]


@pytest.mark.parametrize(("version", "is_compatible"), [(None, False), ("1.45", True)])
def test_the_compatibility_is_serialized(version, is_compatible):
    settings = kopf.OperatorSettings()
    settings.process.compat = version
    assert serialization.serialize_settings(settings)["compat"] is is_compatible


def test_unknown_compatibility_is_rejected():
    settings = kopf.OperatorSettings()
    settings.process.compat = "1.44"
    with pytest.raises(ValueError, match=r"'1\.44'.* KOPF_COMPAT.*'1\.45'"):
        serialization.serialize_settings(settings)


@pytest.mark.contract("api 4")
def test_scalars_and_selectors_of_settings_are_expanded():
    settings = kopf.OperatorSettings()
    settings.networking.error_backoffs = 5
    settings.watching.label_selectors["v1", "pods"] = "a=b"
    data = serialization.serialize_settings(settings)
    assert data["networking"]["error_backoffs"] == [5.0]
    ((selector, value),) = data["watching"]["label_selectors"]
    assert (selector["any_name"], selector["version"], value) == ("pods", "v1", "a=b")


class Endless:
    """As in many operators: the delays grow, differ by chance, and never end."""

    def __init__(self):
        self.taken = 0

    def __iter__(self):
        for number in itertools.count():
            self.taken += 1
            yield min(number, 10) + random.random()


class Finite:
    """An iterable without a length, with an end."""

    def __iter__(self):
        yield from (1, 2.5)


def backoffs(value):
    settings = kopf.OperatorSettings()
    settings.networking.error_backoffs = value
    return serialization.serialize_settings(settings)["networking"]["error_backoffs"]


def test_endless_backoffs_are_taken_lazily_and_differ_between_requests():
    endless = Endless()
    data = backoffs(endless)
    assert data["endless"] is True
    assert (
        len({tuple(series) for series in data["series"]}) == len(data["series"]) == serialization.DRAWN_SERIES
    )
    assert all(int(series[5]) == 5 for series in data["series"])
    assert endless.taken < 3000, "the memory is bounded, and so is the time of the start"


def test_backoffs_with_an_end_are_taken_in_whole():
    assert backoffs(range(2000)) == list(range(2000))
    assert backoffs(()) == []
    data = backoffs(Finite())
    assert data == {"series": [[1.0, 2.5]] * serialization.DRAWN_SERIES, "endless": False}


@pytest.mark.parametrize("iterator, endless", [(iter([1, 2, 3]), False), (itertools.count(1), True)])
def test_iterators_of_one_use_keep_their_values(iterator, endless):
    settings = kopf.OperatorSettings()
    settings.networking.error_backoffs = iterator
    settings.queueing.error_delays = iterator
    iterated = {}
    first, second = (serialization.serialize_settings(settings, iterated) for _ in range(2))
    assert first == second
    [series] = first["networking"]["error_backoffs"]["series"]
    assert series[:3] == [1.0, 2.0, 3.0]
    assert first["networking"]["error_backoffs"]["endless"] is endless
    assert first["queueing"]["error_delays"][:3] == [1.0, 2.0, 3.0]


def test_endless_delays_of_errors_are_limited():
    settings = kopf.OperatorSettings()
    settings.queueing.error_delays = Endless()
    assert (
        len(serialization.serialize_settings(settings)["queueing"]["error_delays"])
        == serialization.MAX_DELAYS
    )


def test_delays_of_posting_are_left_to_those_who_post():
    settings = kopf.OperatorSettings()
    settings.posting.default_backoffs = settings.posting.logging_backoffs = iter([1, 2])
    serialization.serialize_settings(settings)
    assert list(settings.posting.default_backoffs) == [1, 2]
