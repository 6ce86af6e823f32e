"""Causes of cycles and daemons, whose attributes are created at the first access."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any, ClassVar

from kopf._intents.causes import (
    ChangingCause,
    DaemonCause,
    IndexingCause,
    SpawningCause,
    WatchingCause,
)
from kopf._objects.bodies import source_of
from kopf._objects.diffs import Diff, DiffItem, DiffOperation
from kopf._objects.reasons import Reason
from kopf._runtime.bridge import LazyAttribute, object_arguments

DIFF_OPERATIONS = {operation.value: operation for operation in DiffOperation}


def build_diff(items: Iterable[tuple[str, tuple[str, ...], Any, Any]]) -> Diff:
    """Build the diff that handlers get."""
    return Diff(DiffItem(DIFF_OPERATIONS[op], field, old, new) for op, field, old, new in items)


class _LazyCause:
    """The attributes that all causes have. Copies by `dataclasses.replace` have separate values.

    The source is a cycle of an object, a daemon instance, or a call of a reconciler.
    """

    _source: Any
    _change: Any

    logger: Any = LazyAttribute("_source")
    indices: Any = LazyAttribute("_source")
    memo: Any = LazyAttribute("_source")
    resource: Any = LazyAttribute("_source")
    patch: Any = LazyAttribute("_source")
    body: Any = LazyAttribute("_source")

    _own_names: ClassVar[tuple[str, ...]] = ()
    """The attributes that are arguments, apart from those that all causes have."""

    def _make_kwargs(self) -> dict[str, Any]:
        # Copies by `dataclasses.replace` have no source, but all the attributes.
        source = self.__dict__.get("_source", self)
        return object_arguments(self, source, source_of(source.body), self._own_names)

    @property
    def _kwargs(self) -> dict[str, Any]:
        return self._make_kwargs()


class _SharedCause(_LazyCause):
    """A cause whose arguments are the same for all handlers."""

    _kept_kwargs: dict[str, Any] | None = None

    @property
    def _kwargs(self) -> dict[str, Any]:
        if self._kept_kwargs is None:
            self._kept_kwargs = self._make_kwargs()
        return self._kept_kwargs


class LazyWatchingCause(_SharedCause, WatchingCause):
    """The cause of a raw watch event."""

    logger = LazyAttribute("_source", "local_logger")
    type: Any = LazyAttribute("_source")
    event: Any = LazyAttribute("_source")

    _own_names = ("type", "event")


class LazyIndexingCause(_LazyCause, IndexingCause):
    """The cause of indexing."""

    logger = LazyAttribute("_source", "terse_logger")
    patch = LazyAttribute("_source", "separate_patch")


class LazySpawningCause(_LazyCause, SpawningCause):
    """The cause of spawning daemons and timers."""

    reset = False


class LazyDaemonCause(_LazyCause, DaemonCause):
    """The cause of all calls of a daemon or a timer."""

    stopper: Any = LazyAttribute("_source")

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the function, with the flag for its kind: synchronous or asynchronous."""
        instance: Any = self._source
        arguments = self._kwargs  # a new dict
        arguments["stopped"] = instance.stopped
        arguments.update(self.indices)
        return arguments


class LazyReconcilingCause(LazyDaemonCause):
    """The cause of one call of a reconciler."""

    run: Any = LazyAttribute("_source", "job", attrgetter("run"))

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the function, with those that only reconcilers have."""
        call: Any = self._source
        arguments = self._kwargs  # a new dict
        arguments["stopped"] = call.stopped
        call.add_arguments(arguments)
        arguments.update(self.indices)
        return arguments


class LazyChangingCause(_SharedCause, ChangingCause):
    """The cause of a change."""

    initial: Any = LazyAttribute("_change")
    reason: Any = LazyAttribute("_change", "reason", Reason)
    diff: Any = LazyAttribute("_change", "diff", build_diff)
    old: Any = LazyAttribute("_change")
    new: Any = LazyAttribute("_change")

    _own_names = ("reason", "diff", "old", "new")


def make_cause(cls: Any, source: Any, change: Any = None) -> Any:
    """Create a cause of this class; its attributes are created at the first access."""
    cause = object.__new__(cls)
    cause._source, cause._change = source, change
    return cause
