"""In-memory indices of objects.

Handlers see `Index` and `Store`, and can name them in annotations. `LiveIndex` and `LiveStore` implement
them; they know from which object each value has come.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Store(Collection[V], Generic[V]):
    """The values indexed under one key: an unordered read-only collection."""


class Index(Mapping[K, Store[V]], Generic[K, V]):
    """A read-only mapping of keys to the stores of values; always up to date, one for all handlers."""


class LiveStore(Store[V]):
    """A store that remembers which object each value came from."""

    def __init__(self) -> None:
        super().__init__()
        self._items: dict[Hashable, V] = {}

    def __repr__(self) -> str:
        return repr(list(self._items.values()))

    def __bool__(self) -> bool:
        return bool(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[V]:
        return iter(list(self._items.values()))

    def __contains__(self, obj: object) -> bool:
        return any(obj == value for value in list(self._items.values()))

    def _discard(self, origin: Hashable) -> None:
        self._items.pop(origin, None)

    def _replace(self, origin: Hashable, value: V) -> None:
        self._items[origin] = value


class LiveIndex(Index[K, V]):
    """An index that can find and drop all the values of one object."""

    def __init__(self) -> None:
        super().__init__()
        self._stores: dict[K, LiveStore[V]] = {}
        self._keys: dict[Hashable, set[K]] = {}

    def __repr__(self) -> str:
        return repr(self._stores)

    def __bool__(self) -> bool:
        return bool(self._stores)

    def __len__(self) -> int:
        return len(self._stores)

    def __iter__(self) -> Iterator[K]:
        return iter(list(self._stores))

    def __getitem__(self, item: K) -> LiveStore[V]:
        return self._stores[item]

    def __contains__(self, item: object) -> bool:
        return item in self._stores

    # In Kopf 1.45, these are in separate objects, which embedded operators get from their indexers.
    @property
    def index(self) -> LiveIndex[K, V]:
        """The index itself."""
        return self

    def discard(self, key: Hashable) -> None:
        """Drop all the values of an object."""
        self._discard(key)

    def replace(self, key: Hashable, obj: Any) -> None:
        """Put in the values of an object: a mapping of keys and values, or a value of the key None."""
        values: Mapping[Any, V] = obj if isinstance(obj, Mapping) else {None: obj}
        self._replace(key, values)

    def _discard(self, origin: Hashable) -> None:
        self._drop(origin, self._keys.pop(origin, set()))

    def _replace(self, origin: Hashable, values: Mapping[K, V]) -> None:
        stale = self._keys.get(origin, set()) - values.keys()
        for key, value in values.items():
            self._stores.setdefault(key, LiveStore())._replace(origin, value)
        if values:
            self._keys[origin] = set(values)
        else:
            self._keys.pop(origin, None)
        self._drop(origin, stale)

    def _drop(self, origin: Hashable, keys: set[K]) -> None:
        for key in keys:
            self._stores[key]._discard(origin)
            if not self._stores[key]:
                del self._stores[key]


class RunningIndexing:
    """A running indexing of one object; `ids` are the indices that it may still change."""

    __slots__ = ("ids",)

    def __init__(self, ids: set[str]) -> None:
        super().__init__()
        self.ids = ids


class Indexers(dict[str, LiveIndex[Any, Any]]):
    """All indices of an operator by the ids of their handlers. The indices are always there, maybe empty.

    Several indexings of one object can run at once: of its states before and after the watch of another
    version of its resource has begun. The values of the latest one stay.
    """

    def __init__(self) -> None:
        super().__init__()
        self.indices: Mapping[str, Index[Any, Any]] = self
        self._running: dict[Hashable, list[RunningIndexing]] = {}

    def ensure(self, ids: Collection[str]) -> None:
        """Create the absent indices, so that they are in the arguments of handlers from the beginning."""
        for id in ids:
            self.setdefault(id, LiveIndex())

    def add_caches(self, caches: Mapping[str, Any]) -> None:
        """Add caches, which are arguments of handlers like indices."""
        self.update(caches)

    def begin_indexing(self, origin: Hashable, ids: Iterable[str]) -> RunningIndexing:
        """Begin an indexing of an object in these indices; `end_indexing` must follow."""
        running = RunningIndexing(set(ids))
        self._running.setdefault(origin, []).append(running)
        return running

    def supersede_older(self, origin: Hashable, running: RunningIndexing) -> set[str]:
        """Get the indices that the indexing may change; those that have begun before it may not any more."""
        for older in self._running[origin]:
            if older is running:
                break
            older.ids -= running.ids
        return running.ids

    def end_indexing(self, origin: Hashable, running: RunningIndexing) -> None:
        """End an indexing, whether or not it has changed the indices."""
        all_of_object = self._running[origin]
        all_of_object.remove(running)
        if not all_of_object:
            del self._running[origin]

    def is_running(self) -> bool:
        """Whether an indexing is running."""
        return bool(self._running)

    def discard(self, origin: Hashable) -> None:
        """Drop all the values of an object, those of its running indexings included: it is no more."""
        for running in self._running.get(origin, ()):
            running.ids = set()
        for index in self.values():
            if isinstance(index, LiveIndex):
                index._discard(origin)

    def discard_in(self, id: str, origin: Hashable) -> None:
        """Drop the values of an object in one index, after a mismatch or a failure of the function."""
        self[id]._discard(origin)

    def replace_in(self, id: str, origin: Hashable, result: object | None) -> None:
        """Put the result of an indexing function in its index.

        A mapping is keys and values; None keeps the former values; others are values of the key None.
        """
        if result is not None:
            self[id].replace(origin, result)
