"""Parts of the testing kit that need no cluster: durations, and the differences in messages."""

import collections
import datetime
import math

import pytest
from kopf._testing.durations import to_seconds
from kopf._testing.mismatches import contains, describe_mismatch


@pytest.mark.parametrize(
    "duration, seconds",
    [
        (0, 0),
        (1.5, 1.5),
        (datetime.timedelta(minutes=2), 120),
        ("90s", 90),
        ("1h 30m", 5400),
        ("1h30m", 5400),
        ("1.5 hours", 5400),
        ("3 days, 4 hours", 3 * 86400 + 4 * 3600),
        (" 1 Week ", 604800),
        ("250 ms", 0.25),
        ("2 mins", 120),
    ],
)
def test_durations(duration, seconds):
    assert to_seconds(duration) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "3", "days", "3 dyas", "1h and 2m", "-1h", "1h 30"])
def test_texts_that_are_no_durations(text):
    with pytest.raises(ValueError, match="is not a duration such as '3 days', '90s' or '1h 30m'"):
        to_seconds(text)


@pytest.mark.parametrize("value", [None, [], True, math.nan])
def test_types_that_are_no_durations(value):
    with pytest.raises(TypeError, match=r"A duration is seconds, a datetime\.timedelta, or a text"):
        to_seconds(value)


@pytest.mark.parametrize("value", [-1, datetime.timedelta(days=-1)])
def test_time_does_not_go_back(value):
    with pytest.raises(ValueError, match="time does not go back"):
        to_seconds(value)


BODY = {"metadata": {"name": "one", "uid": "u"}, "status": {"a": {"b": 1, "c": [1, 2]}, "z": 0}}


@pytest.mark.parametrize(
    "expected, difference",
    [
        ({"status": {"a": {"b": 2}}}, " status:\n   a:\n-    b: 2\n+    b: 1"),
        ({"status": {"d": 5, "z": 0}}, " status:\n-  d: 5\n   z: 0"),
        ({"status": {"a": {"c": [1]}}}, " status:\n   a:\n     c:\n     - 1\n+    - 2"),
        ({"status": {"a": "x"}}, " status:\n-  a: x\n+  a:\n+    b: 1\n+    c:\n+    - 1\n+    - 2"),
    ],
)
def test_differences_have_only_the_expected_fields(expected, difference):
    assert not contains(expected, BODY)
    assert describe_mismatch(expected, BODY) == f"--- expected\n+++ last state\n{difference}"


def test_differences_from_nothing_and_of_any_types():
    assert describe_mismatch({"a": 1}, None) == "--- expected\n+++ last state\n-a: 1"
    expected = {"a": collections.OrderedDict(b=(1, 2)), "c": {3}}
    assert "-  b:\n-  - 1\n-  - 2\n-c: '{3}'" in describe_mismatch(expected, {})
