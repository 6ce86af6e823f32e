"""Conversion of values between Python and Rust."""

import collections
import copy
import enum
import json
import pickle
import random
import sys
import types
from collections.abc import Mapping

import pytest

_kopf = pytest.importorskip("kopf._kopf")
Object, plain = _kopf.Object, _kopf.json_copy


def test_object_equals_what_it_was_decoded_from(text, raw):
    obj = Object.decode(text)
    assert obj == raw and dict(obj) == raw and obj.to_dict() == raw and repr(obj) == repr(raw)
    assert list(obj) == list(raw) and len(obj) == len(raw)
    assert isinstance(obj, Mapping)


@pytest.mark.contract("engine 0.2")
def test_stanzas_are_real_and_keep_their_identity(text):
    obj = Object.decode(text)
    spec = obj["spec"]
    assert type(spec) is dict and type(spec["items"]) is list
    assert obj["spec"] is spec and obj.get("spec") is spec and obj.to_dict()["spec"] is spec
    assert dict(obj.items())["spec"] is spec


def test_released_values_are_converted_again(text, raw):
    obj = Object.decode(text)
    first, spec = obj._get_path(("spec",), next(iter(raw["spec"]))), obj["spec"]
    obj.release_values()
    assert obj["spec"] == spec and obj["spec"] is not spec
    assert obj._get_path(("spec",), next(iter(raw["spec"]))) == first
    assert obj == raw


def test_absent_keys(text):
    obj = Object.decode(text)
    with pytest.raises(KeyError, match=r"^'absent'$"):
        obj["absent"]
    assert "absent" not in obj and 5 not in obj
    assert obj.get("absent") is None and obj.get("absent", 5) == 5


def test_attributes(text):
    obj = Object.decode(text)
    assert (obj.name, obj.namespace, obj.uid) == ("obj1", "ns1", "uid1")
    assert (obj.api_version, obj.kind) == ("kopf.dev/v1", "KopfExample")


def test_copies_are_plain_dicts(text, raw):
    obj = Object.decode(text)
    for made in (copy.copy(obj), copy.deepcopy(obj), pickle.loads(pickle.dumps(obj))):
        assert type(made) is dict and made == raw
    assert copy.deepcopy(obj)["spec"] is not obj["spec"]


def test_scalars_come_as_they_are():
    text = json.dumps({"metadata": {}, "v": [0, -1, 2**63, 1.0, 1e100, 0.1, True, None, "", "\u2028\\\"'"]})
    assert repr(Object.decode(text)["v"]) == repr(json.loads(text)["v"])


TEXTS = [
    '"\\u00fc \\ud83d\\ude00 \\"quoted\\" \\\\ \\/ \\b\\f\\n\\r\\t"',
    '"\\\\"',
    '""',
    "[0, -0, 7, -7, 123456789012345678, -123456789012345678, 9223372036854775807, -9223372036854775808]",
    "[18446744073709551615, 0.5, -0.0, 1e3, 1E-3, 2.5e+2, 0.1]",
    '{"a": {"b": {}, "c": []}, "\\u0061b": [[], {}, [null, true, false]], "": 1, "a\\"b": 2}',
    ' { "spaced" :\t[ 1 ,\n2 ] } ',
    json.dumps({f"k{length:03}" + "x" * length: "ü" * length for length in range(0, 80, 7)}),
    '{"twice": 1, "twice": 2}',
]


@pytest.mark.parametrize("text", TEXTS)
def test_texts_become_the_same_values_as_in_python(text):
    obj = Object.decode(f'{{"v": {text}, "metadata": {{}}}}')
    # The texts, since 0.0 equals -0.0, and True equals 1.
    assert repr(obj.to_dict()["v"]) == repr(json.loads(text.replace("-0,", "-0.0,")))


CHARACTERS = ["a", "b", "name", "0", " ", '"', "\\", "/", "\n", "\x01", "\x7f", "é", "\u2028", "😀"]


def random_value(random, depth=0):
    """A value of JSON; its integers have at most 64 bits."""

    def string():
        return "".join(random.choices(CHARACTERS, k=random.choice([0, 1, 3, 7, 8, 9, 17, 40])))

    match random.choice("sssinfwdl" if depth < 5 else "sifw"):
        case "s":
            return string()
        case "i":
            return random.choice([0, 1, -1, 10**17, 10**18, -(10**18), 2**63, 2**64 - 1, -(2**63)])
        case "n" | "f":
            return random.choice([0.5, -0.0, 1e300, 5e-324, random.random()])
        case "w":
            return random.choice([True, False, None])
        case "d":
            return {string(): random_value(random, depth + 1) for _ in range(random.randrange(9))}
        case _:
            return [random_value(random, depth + 1) for _ in range(random.randrange(9))]


@pytest.mark.parametrize("seed", range(30))
def test_random_texts_become_the_same_values_as_in_python(seed):
    spec = {str(number): random_value(random.Random(f"{seed}.{number}")) for number in range(30)}
    for options in ({}, {"ensure_ascii": False}, {"indent": 1}, {"separators": (",", ":")}):
        text = json.dumps({"spec": spec}, **options)
        obj = Object.decode(text)
        assert repr(obj.to_dict()) == repr(json.loads(text))
        assert obj["spec"] == spec


def test_strings_that_differ_little_stay_different():
    texts = ["a" * 8 + middle + "b" * 8 for middle in ("", "x", "y", "xy", "yx", "ü", "xx" * 20, "yy" * 20)]
    texts += [text[:length] for text in texts for length in range(18)]
    texts += ["\0" * length + text for length in range(4) for text in ("", "a", "ab", "ba")]
    values = {text: text for text in dict.fromkeys(texts)}
    for _ in range(2):
        spec = Object.decode(json.dumps({"spec": values}))["spec"]
        assert spec == values and list(spec) == list(values)


def test_keys_and_short_values_are_shared_between_objects():
    one, two = (Object.decode('{"spec": {"some-rare-key": "a-rare-value"}}')["spec"] for _ in range(2))
    assert next(iter(one)) is next(iter(two))
    assert one["some-rare-key"] is two["some-rare-key"]


def test_not_json_is_an_error():
    with pytest.raises(ValueError):
        Object.decode("{")


class Number(enum.IntEnum):
    ONE = 1


class Name(enum.StrEnum):
    A = "a"


class Ratio(float):
    def __repr__(self):
        return "a ratio"


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        1,
        2**64 - 1,
        -(2**63),
        1.5,
        "x",
        [],
        {},
        (1, 2),
        {"a": [{"b": None}]},
        {1: 2, None: 3, False: 4, 1.5: 5},
        {Number.ONE: Number.ONE, Ratio(0.5): Ratio(0.5), Name.A: Name.A},
    ],
)
def test_plain_values_are_as_after_json(value):
    assert repr(plain(value)) == repr(json.loads(json.dumps(value)))


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 2**70, -(10**300)])
def test_integers_beyond_64_bits_are_floats_as_the_server_stores_them(value):
    assert repr(plain({"x": value})) == repr({"x": float(value)})


def test_plain_values_are_deep_copies():
    value = {"a": [{}]}
    made = plain(value)
    assert made == value and made["a"] is not value["a"] and made["a"][0] is not value["a"][0]


def test_mappings_are_dicts():
    assert plain({"x": types.MappingProxyType({"y": 1}), "z": collections.OrderedDict(a=1)}) == {
        "x": {"y": 1},
        "z": {"a": 1},
    }


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (
            {"a": {"b": [0, object()]}},
            TypeError,
            r"Object of type object is not JSON serializable \(at a\.b\[1\]\)",
        ),
        (object(), TypeError, r"Object of type object is not JSON serializable$"),
        ({"a": {(1, 2): 3}}, TypeError, r"not tuple \(at a\)"),
        ([float("nan")], ValueError, r"NaN are not JSON \(at \[0\]\)"),
        ({"x": 10**400}, ValueError, r"beyond the range of floats are not JSON \(at x\)"),
    ],
)
def test_what_is_not_json_is_named_with_its_place(value, error, text):
    with pytest.raises(error, match=text):
        plain(value)


def test_surrogates_are_what_the_api_server_makes_of_their_escapes():
    value = {"a\udc80b": ["\ud800", "\ud83d\ude00", "x\udfff\udfffé"]}
    assert plain(value) == {"a\ufffdb": ["\ufffd", "\U0001f600", "x\ufffd\ufffdé"]}


def test_cycles_are_errors_not_crashes():
    value = {}
    value["self"] = value
    with pytest.raises(ValueError, match="refers to itself"):
        plain(value)


def test_keys_are_not_interned():
    # Interned strings are immortal in CPython 3.12.0 to 3.12.5.
    name = f"never-seen-before-{id(object())}"
    [key] = Object.decode(json.dumps({"data": {name: 1}}))["data"]
    assert key == name and sys.intern(name) is name and key is not name
