"""Durations of tests: seconds, `datetime.timedelta`, or text such as `3 days` and `1h 30m`."""

from __future__ import annotations

import datetime
import math
import re

Duration = float | datetime.timedelta | str

_UNITS = {
    "ms": 0.001,
    "millisecond": 0.001,
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "m": 60.0,
    "min": 60.0,
    "minute": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
    "w": 604800.0,
    "week": 604800.0,
}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*,?")


def to_seconds(duration: Duration) -> float:
    """The seconds of a duration.

    Texts are numbers with units, e.g. `90s`, `1h 30m`, `1.5 hours`, `3 days, 4 hours`. Raises `ValueError`
    for other texts and negative durations, and `TypeError` for other types.
    """
    seconds: object = duration
    if isinstance(duration, datetime.timedelta):
        seconds = duration.total_seconds()
    elif isinstance(duration, str):
        seconds = _parse(duration)
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or math.isnan(seconds):
        raise TypeError(
            "A duration is seconds, a datetime.timedelta, or a text such as '3 days' or '1h 30m', "
            f"not {type(duration).__name__} {duration!r}."
        )
    if seconds < 0:
        raise ValueError(f"A duration cannot be negative, as {duration!r} is: time does not go back.")
    return float(seconds)


def _parse(text: str) -> float:
    seconds, position = 0.0, 0
    while found := _PART.match(text.lower(), position):
        number, unit = found.groups()
        factor = _UNITS.get(unit, _UNITS.get(unit.removesuffix("s")))
        if factor is None:
            break
        seconds, position = seconds + float(number) * factor, found.end()
    if not position or text[position:].strip():
        raise ValueError(f"{text!r} is not a duration such as '3 days', '90s' or '1h 30m'.")
    return seconds
