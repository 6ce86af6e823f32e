"""Failures of declared functions, such as filters and keys of caches, which are logged once per object."""

from __future__ import annotations

from collections.abc import Hashable

MAX_FAILURES = 10_000
"""The deletion of objects is not noticed here: beyond this number, the oldest failures are forgotten."""


class RepeatedFailures:
    """The functions that fail for objects, by any keys that identify both."""

    def __init__(self) -> None:
        super().__init__()
        self._failing: dict[Hashable, None] = {}

    def add(self, key: Hashable) -> bool:
        """Remember a failure; whether it is new, and must be logged."""
        if key in self._failing:
            return False
        self._failing[key] = None
        if len(self._failing) > MAX_FAILURES:
            del self._failing[next(iter(self._failing))]
        return True

    def discard(self, key: Hashable) -> None:
        """The function has not failed: its next failure is a new one."""
        self._failing.pop(key, None)
