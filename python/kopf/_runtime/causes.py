"""Causes of cycles and daemons, whose attributes are created at the first access."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from kopf._intents.causes import (
    ChangingCause,
    DaemonCause,
    IndexingCause,
    SpawningCause,
    WatchingCause,
)
from kopf._objects.diffs import Diff, DiffItem, DiffOperation
from kopf._objects.reasons import Reason
from kopf._runtime.bridge import LazyAttribute, ObjectArguments

DIFF_OPERATIONS = {operation.value: operation for operation in DiffOperation}


def build_diff(items: Iterable[tuple[str, tuple[str, ...], Any, Any]]) -> Diff:
    """Build the diff that handlers get."""
    return Diff(DiffItem(DIFF_OPERATIONS[op], field, old, new) for op, field, old, new in items)


class _LazyCause:
    """The attributes that all causes have. Copies by `dataclasses.replace` have separate values.

    The source has what all handlers of the object share: a cycle of the object, the object of daemons, or a
    call of a reconciler. The part is what the cause is about: a change, a daemon instance, or the same call.
    """

    _source: Any = None
    _part: Any = None

    logger: Any = LazyAttribute()
    indices: Any = LazyAttribute()
    memo: Any = LazyAttribute()
    resource: Any = LazyAttribute()
    patch: Any = LazyAttribute()
    body: Any = LazyAttribute()

    _kwargs: Any = ObjectArguments(keep=False)


class LazyWatchingCause(_LazyCause, WatchingCause):
    """The cause of a raw watch event."""

    logger = LazyAttribute("local_logger")
    type: Any = LazyAttribute()
    event: Any = LazyAttribute()

    _kwargs = ObjectArguments("type", "event")


class LazyIndexingCause(_LazyCause, IndexingCause):
    """The cause of indexing."""

    logger = LazyAttribute("terse_logger")
    patch = LazyAttribute("separate_patch")


class LazySpawningCause(_LazyCause, SpawningCause):
    """The cause of spawning daemons and timers."""

    reset = False


class LazyDaemonCause(_LazyCause, DaemonCause):
    """The cause of all calls of a daemon or a timer."""

    indices = LazyAttribute(source="_part")
    patch = LazyAttribute(source="_part")
    stopper: Any = LazyAttribute(source="_part")
    stopped: Any = LazyAttribute(source="_part")

    _call_kwargs: Any = ObjectArguments("stopped", keep=False)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the function, with the flag for its kind: synchronous or asynchronous."""
        return {**self._call_kwargs, **self.indices}


class LazyReconcilingCause(LazyDaemonCause):
    """The cause of one call of a reconciler."""

    run: Any = LazyAttribute("job", convert=attrgetter("run"))

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the function, with those that only reconcilers have."""
        call: Any = self._source
        arguments: dict[str, Any] = self._call_kwargs  # a new dict
        call.add_arguments(arguments)
        arguments.update(self.indices)
        return arguments


class LazyChangingCause(_LazyCause, ChangingCause):
    """The cause of a change."""

    initial: Any = LazyAttribute(source="_part")
    reason: Any = LazyAttribute(source="_part", convert=Reason)
    diff: Any = LazyAttribute(source="_part", convert=build_diff)
    old: Any = LazyAttribute(source="_part")
    new: Any = LazyAttribute(source="_part")

    _kwargs = ObjectArguments("reason", "diff", "old", "new")


def make_cause(cls: Any, source: Any, part: Any = None) -> Any:
    """Create a cause of this class; its attributes are created at the first access."""
    cause = object.__new__(cls)
    cause._source, cause._part = source, part
    return cause
