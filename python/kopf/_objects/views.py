"""Live views of nested mappings.

A view keeps its source and a path, and looks the data up at every access. When the source is replaced, as for
the body of a daemon, all its views show the new data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Generic, TypeVar

from kopf._objects import dicts

K = TypeVar("K")
V = TypeVar("V")


class MappingView(Mapping[K, V], Generic[K, V]):
    """A read-only view of a stanza of another mapping; an absent stanza looks like an empty one.

    A stanza that is there but is not a mapping (e.g. null) raises `TypeError` when it is read.
    """

    _src: Mapping[Any, Any]
    _path: dicts.FieldPath

    def __init__(self, src: Mapping[Any, Any], path: dicts.FieldSpec = None, /) -> None:
        self._src = src
        self._path = path if type(path) is tuple else dicts.parse_field(path)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __bool__(self) -> bool:
        return len(self) > 0

    def __len__(self) -> int:
        try:
            return len(self._stanza())
        except KeyError:
            return 0

    def __iter__(self) -> Iterator[K]:
        try:
            return iter(self._stanza())
        except KeyError:
            return iter(())

    def __getitem__(self, item: K) -> V:
        found = self._src._get_path(self._path, item) if hasattr(self._src, "_get_path") else NotImplemented
        if found is not NotImplemented:
            return found  # type: ignore[no-any-return]
        stanza = self._stanza()
        if type(stanza) is dict or isinstance(stanza, Mapping):
            value: V = stanza[item]
            return value
        raise dicts.not_a_dict(str(item), stanza)

    def _stanza(self) -> Any:
        stanza: Any = self._src
        if self._path and hasattr(stanza, "_get_path"):
            found = stanza._get_path(self._path[:-1], self._path[-1])
            if found is not NotImplemented:
                return found
        for key in self._path:
            if type(stanza) is not dict and not isinstance(stanza, Mapping):
                raise dicts.not_a_dict(key, stanza)
            stanza = stanza[key]
        return stanza


class MutableMappingView(MappingView[K, V], MutableMapping[K, V], Generic[K, V]):
    """A view that can be written to; the stanza is created on the first write."""

    def __delitem__(self, item: K) -> None:
        del self._stanza()[item]

    def __setitem__(self, item: K, value: V) -> None:
        src: Any = self._src
        dicts.ensure(src, (*self._path, item), value)  # type: ignore[arg-type]


class ReplaceableMappingView(MappingView[K, V], Generic[K, V]):
    """A view whose source can be replaced as a whole, with all views made from this one following."""

    def _get_path(self, path: dicts.FieldPath, item: Any) -> Any:
        """The value of the item at the path, if the source has a shortcut; else `NotImplemented`."""
        src = self._src
        if type(src) is dict or self._path or not hasattr(src, "_get_path"):
            return NotImplemented
        return src._get_path(path, item)

    def _replace_from(self, view: MappingView[K, V], /) -> None:
        self._src = view._src

    def _replace_with(self, src: Mapping[K, V], /) -> None:
        self._src = src
