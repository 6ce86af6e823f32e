"""Differences of two states of an object.

The order of items is deterministic: additions, removals, and then the keys in both, sorted.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, overload

from kopf._objects import dicts


class DiffScope(enum.Flag):
    """Which keys of mappings are compared: of the left one, of the right one, or of both."""

    LEFT = enum.auto()
    RIGHT = enum.auto()
    FULL = LEFT | RIGHT


class DiffOperation(enum.StrEnum):
    """The change of a field; it behaves as a plain string, also in logs."""

    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        return repr(self.value)


class DiffItem(NamedTuple):
    """One change: the operation, the path, the value before, the value after (None for the absent one)."""

    operation: DiffOperation
    field: dicts.FieldPath
    old: Any
    new: Any

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sequence):
            return tuple(self) == tuple(other)
        return NotImplemented

    def __ne__(self, other: object) -> bool:
        if isinstance(other, Sequence):
            return tuple(self) != tuple(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    @property
    def op(self) -> DiffOperation:
        """The same as `operation`."""
        return self.operation


class Diff(Sequence[DiffItem]):
    """An immutable list of changes; it equals to any sequence of the same changes."""

    def __init__(self, items: Iterable[DiffItem], /) -> None:
        super().__init__()
        self._items = tuple(DiffItem(*item) for item in items)

    def __repr__(self) -> str:
        return repr(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[DiffItem]:
        return iter(self._items)

    @overload
    def __getitem__(self, i: int) -> DiffItem: ...

    @overload
    def __getitem__(self, i: slice) -> Sequence[DiffItem]: ...

    def __getitem__(self, i: int | slice) -> DiffItem | Sequence[DiffItem]:
        return self._items[i]

    def __hash__(self) -> int:
        return hash(self._items)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sequence):
            return self._items == tuple(other)
        return NotImplemented


EMPTY = Diff([])


def diff(a: Any, b: Any, path: dicts.FieldPath = (), *, scope: DiffScope = DiffScope.FULL) -> Diff:
    """Compare two states: mappings by keys, anything else as a whole; None is the same as absence."""
    return Diff(_items(a, b, path=tuple(path), scope=scope))


def reduce(d: Diff, path: dicts.FieldPath) -> Diff:
    """Keep only the changes of one field, with their paths relative to it."""
    return Diff(_reduced(d, tuple(path)))


def _items(a: Any, b: Any, *, path: dicts.FieldPath, scope: DiffScope) -> Iterator[DiffItem]:
    if a is b or a == b:
        return
    if a is None:
        yield DiffItem(DiffOperation.ADD, path, None, b)
    elif b is None:
        yield DiffItem(DiffOperation.REMOVE, path, a, None)
    elif isinstance(a, Mapping) and isinstance(b, Mapping):
        if DiffScope.RIGHT in scope:
            for key in sorted(b.keys() - a.keys(), key=str):
                yield from _items(None, b[key], path=(*path, key), scope=scope)
        if DiffScope.LEFT in scope:
            for key in sorted(a.keys() - b.keys(), key=str):
                yield from _items(a[key], None, path=(*path, key), scope=scope)
        for key in sorted(a.keys() & b.keys(), key=str):
            yield from _items(a[key], b[key], path=(*path, key), scope=scope)
    else:
        yield DiffItem(DiffOperation.CHANGE, path, a, b)


def _reduced(d: Diff, path: dicts.FieldPath) -> Iterator[DiffItem]:
    for op, field, old, new in d:
        if not path or tuple(field[: len(path)]) == path:
            yield DiffItem(op, tuple(field[len(path) :]), old, new)
        elif tuple(field) == path[: len(field)]:
            # The change is above the field: compare the values of the field.
            tail = path[len(field) :]
            yield from _items(
                dicts.resolve(old, tail, default=None),
                dicts.resolve(new, tail, default=None),
                path=(),
                scope=DiffScope.FULL,
            )
