"""Causes whose attributes are made at the first access: views, loggers, patches, differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kopf._intents.causes import (
    ChangingCause,
    DaemonCause,
    IndexingCause,
    SpawningCause,
    WatchingCause,
)
from kopf._objects.diffs import Diff, DiffItem, DiffOperation
from kopf._objects.patches import Patch
from kopf._objects.reasons import Reason
from kopf._runtime.logs import TerseObjectLogger

if TYPE_CHECKING:
    from kopf._runtime.cycles import Cycle
    from kopf._runtime.daemons import Run

OPERATIONS = {operation.value: operation for operation in DiffOperation}


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

    @property
    def _kwargs(self) -> dict[str, Any]:
        # The same as the parents make, but at once: it is done for each call of each handler.
        source = self._cycle  # type: ignore[attr-defined]
        object, body = source.object, source.body
        meta = body.metadata
        return {
            "logger": self.logger,
            "memo": source.memo,
            "resource": source.resource,
            "patch": self.patch,
            "body": body,
            "spec": body.spec,
            "meta": meta,
            "status": body.status,
            "uid": object.uid,
            "name": object.name,
            "namespace": object.namespace,
            "labels": meta.labels,
            "annotations": meta.annotations,
        }

    def __init_subclass__(cls) -> None:
        # Nobody is to see from outside when things are made.
        cls.__name__ = cls.__qualname__ = cls.__bases__[-1].__name__

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The parent: copies with some attributes replaced are of no cycle."""
        return type(self).__bases__[-1]


class LazyWatchingCause(_OfCycle, WatchingCause):
    """The same as its parent, of a cycle."""

    logger = _Later(lambda cycle, _: cycle.local_logger)
    type: Any = _Later(lambda cycle, _: cycle.type)
    # The values are those of the body, as if the body were made of the event.
    event: Any = _Later(lambda cycle, _: {"type": cycle.type, "object": cycle.object.to_dict()})

    @property
    def _kwargs(self) -> dict[str, Any]:
        return {**super()._kwargs, "type": self.type, "event": self.event}


class LazyIndexingCause(_OfCycle, IndexingCause):
    """The same as its parent, of a cycle."""

    logger = _Later(lambda cycle, _: TerseObjectLogger(body=cycle.body, settings=cycle.settings))
    patch = _Later(lambda cycle, _: Patch(None, body=cycle.body))


class LazySpawningCause(_OfCycle, SpawningCause):
    """The same as its parent, of a cycle."""

    reset = False


class LazyDaemonCause(_OfCycle, DaemonCause):
    """The same as its parent, of a daemon or a timer, for all of its calls."""

    stopper: Any = _Later(lambda run, _: run.stopper)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the function, with the flag for its kind: synchronous or asynchronous."""
        run: Run = self._cycle  # type: ignore[attr-defined]
        return {**self._kwargs, "stopped": run.stopped, **self.indices}


class LazyChangingCause(_OfCycle, ChangingCause):
    """The same as its parent, of a cycle and a change."""

    initial: Any = _Later(lambda _, change: change.initial)
    reason: Any = _Later(lambda _, change: Reason(change.reason))
    diff: Any = _Later(lambda _, change: diff_of(change.diff))
    old: Any = _Later(lambda _, change: change.old)
    new: Any = _Later(lambda _, change: change.new)

    @property
    def _kwargs(self) -> dict[str, Any]:
        of_change = {"reason": self.reason, "diff": self.diff, "old": self.old, "new": self.new}
        return {**super()._kwargs, **of_change}


def lazily(cls: Any, cycle: Cycle | Run, change: Any = None) -> Any:
    """A cause of this class, of a cycle and a change in it, or of a daemon."""
    cause = object.__new__(cls)
    cause._cycle, cause._change = cycle, change
    return cause


def diff_of(items: Iterable[tuple[str, tuple[str, ...], Any, Any]]) -> Diff:
    """The differences as handlers see them."""
    return Diff(DiffItem(OPERATIONS[op], field, old, new) for op, field, old, new in items)
