"""What most handlers never look at, made when somebody does: raw events, causes, differences. It owns when
they are made; what they are is the cycle's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kopf._intents.causes import (
    Arguments,
    Cause,
    ChangingCause,
    DaemonCause,
    IndexingCause,
    SpawningCause,
    WatchingCause,
)
from kopf._objects.diffs import Diff, DiffItem, DiffOperation
from kopf._objects.patches import Patch
from kopf._objects.raw import RawEventType
from kopf._objects.reasons import Reason
from kopf._runtime.bridge import Object
from kopf._runtime.logs import TerseObjectLogger

if TYPE_CHECKING:
    from kopf._runtime.cycles import Cycle
    from kopf._runtime.daemons import Run

OPERATIONS = {operation.value: operation for operation in DiffOperation}


class LazyEvent(dict[str, Any]):
    """A raw event whose object becomes a dict only when it is looked at."""

    def __init__(self, type: RawEventType, object: Object) -> None:
        super().__init__(type=type)
        self._object: Object | None = object

    def _complete(self) -> dict[str, Any]:
        if self._object is not None:
            self["object"], self._object = self._object.to_dict(), None
        return self

    def __missing__(self, key: str) -> Any:
        if key == "object" and self._object is not None:
            return self._complete()[key]
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return (key == "object" and self._object is not None) or super().__contains__(key)

    def __iter__(self) -> Any:
        self._complete()
        return super().__iter__()

    def __len__(self) -> int:
        return super().__len__() + (self._object is not None)

    def __eq__(self, other: object) -> bool:
        self._complete()
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __repr__(self) -> str:
        self._complete()
        return super().__repr__()

    def __reduce__(self) -> Any:
        return dict, (dict(self.items()),)

    def get(self, key: str, default: Any = None, /) -> Any:
        """The value of a key."""
        try:
            return self[key]
        except KeyError:
            return default

    def keys(self) -> Any:
        """The keys."""
        self._complete()
        return super().keys()

    def values(self) -> Any:
        """The values."""
        self._complete()
        return super().values()

    def items(self) -> Any:
        """The keys with their values."""
        self._complete()
        return super().items()

    def copy(self) -> dict[str, Any]:
        """A plain dict."""
        return dict(self.items())


class _Later:
    """An attribute of a cause that is made when somebody looks at it."""

    def __init__(self, make: Callable[[Any, Any], Any]) -> None:
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, cause: Any, _: type) -> Any:
        value = cause.__dict__[self._name] = self._make(cause._cycle, cause._change)
        return value


class _OfCycle:
    """What the causes of one cycle share."""

    logger: Any = _Later(lambda cycle, _: cycle.logger)
    indices: Any = _Later(lambda cycle, _: cycle.indices)
    memo: Any = _Later(lambda cycle, _: cycle.memo)
    resource: Any = _Later(lambda cycle, _: cycle.resource)
    patch: Any = _Later(lambda cycle, _: cycle.patch)
    body: Any = _Later(lambda cycle, _: cycle.body)

    def __init_subclass__(cls) -> None:
        # Nobody is to see from outside when things are made.
        cls.__name__ = cls.__qualname__ = cls.__bases__[-1].__name__

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The parent: copies with some attributes replaced are of no cycle."""
        return type(self).__bases__[-1]


def _of_cycle(cls: type[Cause]) -> Arguments:
    return cls._arguments | {
        name: attrgetter(f"_cycle.object.{name}") for name in ("uid", "name", "namespace")
    }


class LazyWatchingCause(_OfCycle, WatchingCause):
    """The same as its parent, of a cycle."""

    _arguments = _of_cycle(WatchingCause)

    logger = _Later(lambda cycle, _: cycle.local_logger)
    type: Any = _Later(lambda cycle, _: cycle.type)
    event: Any = _Later(lambda cycle, _: LazyEvent(cycle.type, cycle.object))


class LazyIndexingCause(_OfCycle, IndexingCause):
    """The same as its parent, of a cycle."""

    _arguments = _of_cycle(IndexingCause)

    logger = _Later(lambda cycle, _: TerseObjectLogger(body=cycle.body, settings=cycle.settings))
    patch = _Later(lambda cycle, _: Patch(None, body=cycle.body))


class LazySpawningCause(_OfCycle, SpawningCause):
    """The same as its parent, of a cycle."""

    _arguments = _of_cycle(SpawningCause)

    reset = False


class LazyDaemonCause(_OfCycle, DaemonCause):
    """The same as its parent, of a daemon or a timer, for all of its calls."""

    _arguments = _of_cycle(DaemonCause)

    stopper: Any = _Later(lambda run, _: run.stopper)

    def arguments(self, wanted: frozenset[str] | None) -> dict[str, Any]:
        """With the flag as the function sees it, unless an index has its name."""
        found = super().arguments(wanted)
        if wanted is None or "stopped" in wanted:
            found.setdefault("stopped", self._cycle.stopped)  # type: ignore[attr-defined]
        return found


class LazyChangingCause(_OfCycle, ChangingCause):
    """The same as its parent, of a cycle and a change."""

    _arguments = _of_cycle(ChangingCause)

    initial: Any = _Later(lambda _, change: change.initial)
    reason: Any = _Later(lambda _, change: Reason(change.reason))
    diff: Any = _Later(lambda _, change: diff_of(change.diff))
    old: Any = _Later(lambda _, change: change.old)
    new: Any = _Later(lambda _, change: change.new)


def lazily(cls: Any, cycle: Cycle | Run, change: Any = None) -> Any:
    """A cause of this class, of a cycle and a change in it, or of a daemon."""
    cause = object.__new__(cls)
    cause._cycle, cause._change = cycle, change
    return cause


def diff_of(items: Iterable[tuple[str, tuple[str, ...], Any, Any]]) -> Diff:
    """The differences as handlers see them."""
    return Diff(DiffItem(OPERATIONS[op], field, old, new) for op, field, old, new in items)
