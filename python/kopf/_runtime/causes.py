"""Causes of cycles and daemons, whose attributes are created at the first access."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from kopf._intents.causes import (
    ChangingCause,
    DaemonCause,
    IndexingCause,
    ResourceCause,
    SpawningCause,
    WatchingCause,
)
from kopf._objects.bodies import argument_views
from kopf._objects.diffs import Diff, DiffItem, DiffOperation
from kopf._objects.reasons import Reason
from kopf._runtime.bridge import LazyAttribute, Object

DIFF_OPERATIONS = {operation.value: operation for operation in DiffOperation}


def build_diff(items: Iterable[tuple[str, tuple[str, ...], Any, Any]]) -> Diff:
    """Build the diff that handlers get."""
    return Diff(DiffItem(DIFF_OPERATIONS[op], field, old, new) for op, field, old, new in items)


# Its copies have room for the other arguments of a handler, so that they do not grow.
_NAMES: dict[str, Any] = dict.fromkeys(ResourceCause._arguments)


def object_arguments(cause: Any) -> dict[str, Any]:
    """The arguments about the object of a cause, which handlers of all kinds get, in a new dict.

    The logger and the patch are those of the cause; the others are made of its source. A cause without a
    source has all of them.
    """
    source = cause._source
    if source is None:
        return {name: make(cause) for name, make in ResourceCause._arguments.items()}
    arguments = _NAMES.copy()
    body, object = source.body, source.object
    meta, spec, status, labels, annotations = argument_views(body)
    arguments["logger"] = cause.logger
    arguments["memo"] = source.memo
    arguments["resource"] = source.resource
    arguments["patch"] = cause.patch
    arguments["body"] = body
    arguments["spec"] = spec
    arguments["meta"] = meta
    arguments["status"] = status
    if isinstance(object, Object):
        arguments["uid"], arguments["name"], arguments["namespace"] = object.identity()
    else:
        arguments["uid"], arguments["name"], arguments["namespace"] = meta.uid, meta.name, meta.namespace
    arguments["labels"] = labels
    arguments["annotations"] = annotations
    return arguments


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

    @property
    def _kwargs(self) -> dict[str, Any]:
        return object_arguments(self)


class _SharedCause(_LazyCause):
    """A cause whose arguments are made once for all its handlers and their filters."""

    _made_kwargs: dict[str, Any] | None = None

    def _make_kwargs(self) -> dict[str, Any]:
        raise NotImplementedError

    @property
    def _kwargs(self) -> dict[str, Any]:
        if self._made_kwargs is None:
            self._made_kwargs = self._make_kwargs()
        return self._made_kwargs

    @property
    def kwargs(self) -> dict[str, Any]:
        """The arguments of handlers and filters, in a new dict."""
        return {**(self._made_kwargs or self._kwargs), **self.indices}


class LazyWatchingCause(_SharedCause, WatchingCause):
    """The cause of a raw watch event."""

    logger = LazyAttribute("local_logger")
    type: Any = LazyAttribute()
    event: Any = LazyAttribute()

    def _make_kwargs(self) -> dict[str, Any]:
        kwargs = object_arguments(self)
        kwargs["type"], kwargs["event"] = self.type, self.event
        return kwargs


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

    def arguments(self) -> dict[str, Any]:
        """Make the arguments of the function, with the flag for its kind: synchronous or asynchronous."""
        arguments = object_arguments(self)
        arguments["stopped"] = self.stopped
        arguments.update(self.indices)
        return arguments


class LazyReconcilingCause(LazyDaemonCause):
    """The cause of one call of a reconciler."""

    run: Any = LazyAttribute("host_task", convert=attrgetter("run"))

    def arguments(self) -> dict[str, Any]:
        """Make the arguments of the function, with those that only reconcilers have."""
        call: Any = self._source
        arguments = object_arguments(self)
        arguments["stopped"] = self.stopped
        call.add_arguments(arguments)
        arguments.update(self.indices)
        return arguments


class LazyChangingCause(_SharedCause, ChangingCause):
    """The cause of a change."""

    initial: Any = LazyAttribute(source="_part")
    reason: Any = LazyAttribute(source="_part", convert=Reason)
    diff: Any = LazyAttribute(source="_part", convert=build_diff)
    old: Any = LazyAttribute(source="_part")
    new: Any = LazyAttribute(source="_part")

    def _make_kwargs(self) -> dict[str, Any]:
        kwargs = object_arguments(self)
        kwargs["reason"], kwargs["diff"], kwargs["old"], kwargs["new"] = (
            self.reason,
            self.diff,
            self.old,
            self.new,
        )
        return kwargs


def make_cause(cls: Any, source: Any, part: Any = None) -> Any:
    """Create a cause of this class; its attributes are created at the first access."""
    cause = object.__new__(cls)
    cause._source, cause._part = source, part
    return cause
