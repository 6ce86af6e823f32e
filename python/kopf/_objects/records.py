"""Data classes that are cheap to define. It owns how they look and compare, once for all of them.

What `dataclass` generates for a class is compiled anew at each start: there are dozens of them, and most
of that is never used. So, they are declared with `repr=False, eq=False`, and inherit these.
"""

from __future__ import annotations

import dataclasses
import reprlib
from typing import Any


class Record:
    """Looks and compares as other data classes do: by all its fields that are to be shown."""

    @reprlib.recursive_repr()
    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._names())
        return f"{type(self).__qualname__}({fields})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    __hash__: Any = None

    @classmethod
    def _names(cls) -> tuple[str, ...]:
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        return tuple(field.name for field in fields if field.repr)

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self._names())


class FrozenRecord(Record):
    """The same for those that never change: they can be keys."""

    def __hash__(self) -> int:
        return hash(self._values())
