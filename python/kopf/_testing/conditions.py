"""What is waited for in a cluster: a function of an object, or a part that the object must have. It owns the
comparison; it must not know who waits, and for how long.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from kopf._testing.discovery import Object

Condition = Callable[[Object | None], Any] | Mapping[str, Any]


def as_function(condition: Condition | None) -> Callable[[Object | None], Any]:
    """A function for any condition; without one, whatever is there will do."""
    if condition is None:
        return lambda _: True
    if isinstance(condition, Mapping):
        return functools.partial(contains, condition)
    return condition


def contains(expected: Any, actual: Any) -> bool:
    """Whether the wanted part is in the actual one."""
    if isinstance(expected, Mapping):
        return isinstance(actual, Mapping) and all(
            key in actual and contains(value, actual[key]) for key, value in expected.items()
        )
    return bool(expected == actual)
