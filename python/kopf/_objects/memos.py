"""Memo of an object: arbitrary data that handlers keep in memory."""

from __future__ import annotations

from typing import Any

AnyMemo = Any
"""A memo as handlers see it: `Memo`, or a copy of the operator's `memo`."""


class Memo(dict[Any, Any]):
    """A dict whose keys are also attributes. Not persisted: it exists as long as the operator and the object.

    The names of methods of dicts are not readable as attributes (but are writable): use items for them.
    """

    def __setattr__(self, key: str, value: Any) -> None:
        self[key] = value

    def __delattr__(self, key: str) -> None:
        try:
            del self[key]
        except KeyError as e:
            raise AttributeError(str(e)) from e

    def __getattr__(self, key: str) -> Any:
        try:
            return self[key]
        except KeyError as e:
            raise AttributeError(str(e)) from e
