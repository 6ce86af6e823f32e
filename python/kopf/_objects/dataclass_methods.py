"""Comparison and representation of data classes by their fields.

`dataclasses` compiles such methods for each class when its module is imported, which is a large part of the
start of an operator. Here, all classes share them.
"""

from __future__ import annotations

import dataclasses
import reprlib


class DataclassMethods:
    """The base of data classes that are declared with `eq=False, repr=False`: they have no hash."""

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return _compared(self) == _compared(other)

    @reprlib.recursive_repr()
    def __repr__(self) -> str:
        shown = [f"{item.name}={getattr(self, item.name)!r}" for item in _fields(self) if item.repr]
        return f"{type(self).__qualname__}({', '.join(shown)})"


class FrozenDataclassMethods(DataclassMethods):
    """The base of data classes that are declared with `frozen=True, eq=False, repr=False`."""

    def __hash__(self) -> int:
        return hash(_compared(self))


def _fields(instance: object) -> tuple[dataclasses.Field[object], ...]:
    return dataclasses.fields(instance)  # type: ignore[arg-type]


def _compared(instance: object) -> tuple[object, ...]:
    return tuple([getattr(instance, item.name) for item in _fields(instance) if item.compare])
