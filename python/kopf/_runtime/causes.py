"""Causes of cycles and daemons, whose attributes are created at the first access."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from kopf._intents.causes import (
    ChangingCause,
    DaemonCause,
    IndexingCause,
    SpawningCause,
    WatchingCause,
)
from kopf._objects.bodies import Body, source_of
from kopf._objects.diffs import Diff, DiffItem, DiffOperation
from kopf._objects.memos import AnyMemo
from kopf._objects.patches import Patch
from kopf._objects.reasons import Reason
from kopf._objects.resources import Resource
from kopf._runtime.bridge import Object
from kopf._runtime.loggers import ObjectLogger, TerseObjectLogger

DIFF_OPERATIONS = {operation.value: operation for operation in DiffOperation}


class CauseSource(Protocol):
    """What causes take their attributes from: a cycle of an object, or a daemon instance."""

    @property
    def body(self) -> Body: ...
    @property
    def patch(self) -> Patch: ...
    @property
    def logger(self) -> ObjectLogger: ...
    @property
    def memo(self) -> AnyMemo: ...
    @property
    def resource(self) -> Resource | None: ...
    @property
    def indices(self) -> Mapping[str, Any]: ...


class _LazyAttribute:
    """An attribute of a cause that is made of its source at the first access; it can be assigned, too."""

    def __init__(self, make: Callable[[Any, Any], Any]) -> None:
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, cause: Any, _: type) -> Any:
        value = cause.__dict__[self._name] = self._make(cause._source, cause._change)
        return value


class _LazyCause:
    """The attributes that all causes have. Copies by `dataclasses.replace` have separate values."""

    _source: CauseSource
    _change: Any

    logger: Any = _LazyAttribute(lambda source, _: source.logger)
    indices: Any = _LazyAttribute(lambda source, _: source.indices)
    memo: Any = _LazyAttribute(lambda source, _: source.memo)
    resource: Any = _LazyAttribute(lambda source, _: source.resource)
    patch: Any = _LazyAttribute(lambda source, _: source.patch)
    body: Any = _LazyAttribute(lambda source, _: source.body)

    @property
    def _kwargs(self) -> dict[str, Any]:
        # The same as in the parents, with each view made once: it is done for each call of each handler.
        # Copies by `dataclasses.replace` have no source, but all the attributes.
        source = self.__dict__.get("_source", self)
        body = source.body
        meta = body.metadata
        origin = source_of(body)
        object = origin if isinstance(origin, Object) else meta  # both have the names
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


class LazyWatchingCause(_LazyCause, WatchingCause):
    """The cause of a raw watch event."""

    logger = _LazyAttribute(lambda source, _: source.local_logger)
    type: Any = _LazyAttribute(lambda source, _: source.type)
    # The values are those of the body, as if the body were made of the event.
    event: Any = _LazyAttribute(lambda source, _: {"type": source.type, "object": source.object.to_dict()})

    _kept_kwargs: dict[str, Any] | None = None  # the same for all handlers

    @property
    def _kwargs(self) -> dict[str, Any]:
        if self._kept_kwargs is None:
            self._kept_kwargs = {**super()._kwargs, "type": self.type, "event": self.event}
        return self._kept_kwargs


class LazyIndexingCause(_LazyCause, IndexingCause):
    """The cause of indexing."""

    logger = _LazyAttribute(lambda source, _: TerseObjectLogger(body=source.body, settings=source.settings))
    patch = _LazyAttribute(lambda source, _: Patch(None, body=source.body))


class LazySpawningCause(_LazyCause, SpawningCause):
    """The cause of spawning daemons and timers."""

    reset = False


class LazyDaemonCause(_LazyCause, DaemonCause):
    """The cause of all calls of a daemon or a timer."""

    stopper: Any = _LazyAttribute(lambda instance, _: instance.stopper)

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

    run: Any = _LazyAttribute(lambda call, _: call.job.run)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the function, with those that only reconcilers have."""
        call: Any = self._source
        arguments = self._kwargs  # a new dict
        arguments["stopped"] = call.stopped
        call.add_arguments(arguments)
        arguments.update(self.indices)
        return arguments


class LazyChangingCause(_LazyCause, ChangingCause):
    """The cause of a change."""

    initial: Any = _LazyAttribute(lambda _, change: change.initial)
    reason: Any = _LazyAttribute(lambda _, change: Reason(change.reason))
    diff: Any = _LazyAttribute(lambda _, change: build_diff(change.diff))
    old: Any = _LazyAttribute(lambda _, change: change.old)
    new: Any = _LazyAttribute(lambda _, change: change.new)

    _kept_kwargs: dict[str, Any] | None = None  # the same for all handlers

    @property
    def _kwargs(self) -> dict[str, Any]:
        if self._kept_kwargs is None:
            change_kwargs = {"reason": self.reason, "diff": self.diff, "old": self.old, "new": self.new}
            self._kept_kwargs = {**super()._kwargs, **change_kwargs}
        return self._kept_kwargs


def make_cause(cls: Any, source: CauseSource, change: Any = None) -> Any:
    """Create a cause of this class; its attributes are created at the first access."""
    cause = object.__new__(cls)
    cause._source, cause._change = source, change
    return cause


def build_diff(items: Iterable[tuple[str, tuple[str, ...], Any, Any]]) -> Diff:
    """Build the diff that handlers get."""
    return Diff(DiffItem(DIFF_OPERATIONS[op], field, old, new) for op, field, old, new in items)
