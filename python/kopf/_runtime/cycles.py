"""What is kept while one object is being handled: one body, one patch, one memo for all handlers of a cycle.
It owns the arguments of handlers; it must not know when handlers are called."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, cast

from kopf._intents.causes import (
    ChangingCause,
    IndexingCause,
    ResourceCause,
    SpawningCause,
    WatchingCause,
)
from kopf._intents.handlers import Handler, ResourceHandler
from kopf._intents.settings import OperatorSettings
from kopf._objects.bodies import Body
from kopf._objects.diffs import Diff, DiffItem, DiffOperation
from kopf._objects.memos import AnyMemo, Memo
from kopf._objects.patches import Patch, PatchFn
from kopf._objects.raw import RawEvent, RawEventType
from kopf._objects.reasons import Reason
from kopf._objects.resources import Resource
from kopf._runtime.bridge import Change, Object
from kopf._runtime.logs import LocalObjectLogger, ObjectLogger, TerseObjectLogger

OPERATIONS = {operation.value: operation for operation in DiffOperation}

MAX_REVIEWED = 10_000


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


class Cycle:
    """One cycle of one object, from its first request until it is closed."""

    __slots__ = (
        "_changing",
        "_changing_kwargs",
        "_common",
        "_local_logger",
        "_logger",
        "_reduced",
        "_watching",
        "_watching_kwargs",
        "body",
        "cancelled",
        "error",
        "essence",
        "indices",
        "memo",
        "object",
        "patch",
        "resource",
        "sent",
        "settings",
        "task",
        "type",
        "uid",
    )

    def __init__(
        self,
        object: Object,
        *,
        uid: str,
        resource: Resource | None = None,
        type: RawEventType = None,
        memo: AnyMemo = None,
        settings: OperatorSettings,
        indices: Mapping[str, Any],
        fns: Iterable[PatchFn] = (),
        body: Body | None = None,
    ) -> None:
        self.object = object
        self.uid = uid
        self.resource = resource
        self.type = type
        self.memo = memo
        self.settings = settings
        self.indices = indices
        self.body = body if body is not None else Body(object)
        self.patch = Patch(None, body=self.body, fns=fns)
        self._logger: ObjectLogger | None = None
        self._local_logger: LocalObjectLogger | None = None
        self.error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None  # of a script that has to wait
        self.cancelled = False
        self.essence: Any = None  # as the user's storages have built it, if there are any
        self.sent = False  # whether a patch was sent to the engine, and has to be replaced by what it becomes
        self._common: dict[str, Any] | None = None
        self._watching: WatchingCause | None = None
        self._changing: ChangingCause | None = None
        self._watching_kwargs: dict[str, Any] | None = None
        self._changing_kwargs: dict[str, Any] | None = None
        self._reduced: dict[tuple[str, ...], tuple[ChangingCause, dict[str, Any]]] = {}

    def waits(self, task: asyncio.Task[Any] | None) -> None:
        """The script has to wait, in this task."""
        self.task = task

    def cancel(self) -> None:
        """Cancel the script that runs, or is about to."""
        self.cancelled = True
        if self.task is not None:
            self.task.cancel()

    @property
    def logger(self) -> ObjectLogger:
        """The logger for handlers of changes."""
        if self._logger is None:
            self._logger = ObjectLogger(body=self.body, settings=self.settings)
        return self._logger

    @property
    def local_logger(self) -> LocalObjectLogger:
        """The logger for handlers of events."""
        if self._local_logger is None:
            self._local_logger = LocalObjectLogger(body=self.body, settings=self.settings)
        return self._local_logger

    # The same as what causes say of themselves, but without descending into the metadata for the names.
    @property
    def common(self) -> dict[str, Any]:
        """The arguments that all handlers of the object have."""
        if self._common is None:
            body = self.body
            meta = body.metadata
            self._common = {
                "memo": self.memo,
                "resource": self.resource,
                "patch": self.patch,
                "body": body,
                "spec": body.spec,
                "meta": meta,
                "status": body.status,
                "uid": self.object.uid,
                "name": self.object.name,
                "namespace": self.object.namespace,
                "labels": meta.labels,
                "annotations": meta.annotations,
            }
        return self._common

    def indexing(self) -> tuple[ResourceCause, dict[str, Any]]:
        """The cause and the arguments of index functions. Their patch goes nowhere."""
        logger = TerseObjectLogger(body=self.body, settings=self.settings)
        patch = Patch(None, body=self.body)
        cause = IndexingCause(
            logger=logger,
            indices=self.indices,
            memo=self.memo,
            resource=cast(Resource, self.resource),
            patch=patch,
            body=self.body,
        )
        return cause, {"logger": logger, **self.common, "patch": patch, **self.indices}

    def watching(self) -> tuple[ResourceCause, dict[str, Any]]:
        """The cause and the arguments of handlers of events."""
        if self._watching is None or self._watching_kwargs is None:
            event = LazyEvent(self.type, self.object)
            logger = self.local_logger
            self._watching = WatchingCause(
                logger=logger,
                indices=self.indices,
                memo=self.memo,
                resource=cast(Resource, self.resource),
                patch=self.patch,
                body=self.body,
                type=self.type,
                event=cast(RawEvent, event),
            )
            kwargs = self._watching_kwargs = self.common.copy()
            kwargs["logger"] = logger
            kwargs["type"] = self.type
            kwargs["event"] = event
            kwargs.update(self.indices)
        return self._watching, self._watching_kwargs

    def spawning(self) -> SpawningCause:
        """The cause for the filters of daemons and timers."""
        return SpawningCause(
            logger=self.logger,
            indices=self.indices,
            memo=self.memo,
            resource=cast(Resource, self.resource),
            patch=self.patch,
            body=self.body,
            reset=False,
        )

    def changing(self, change: Change) -> tuple[ResourceCause, dict[str, Any]]:
        """The cause and the arguments of handlers of changes, for the object as a whole."""
        if self._changing is None or self._changing_kwargs is None:
            self._changing = ChangingCause(
                logger=self.logger,
                indices=self.indices,
                memo=self.memo,
                resource=cast(Resource, self.resource),
                patch=self.patch,
                body=self.body,
                initial=change.initial,
                reason=Reason(change.reason),
                diff=_diff(change.diff),
                old=change.old,
                new=change.new,
            )
            self._changing_kwargs = {
                "logger": self.logger,
                **self.common,
                **_changes(self._changing),
                **self.indices,
            }
        return self._changing, self._changing_kwargs

    def changing_of(self, change: Change, handler: Handler) -> tuple[ResourceCause, dict[str, Any]]:
        """The cause and the arguments of a handler of changes; if it has a field, for this field only."""
        cause, kwargs = self.changing(change)
        field = handler.field if isinstance(handler, ResourceHandler) else None
        if not field or not isinstance(cause, ChangingCause):
            return cause, kwargs
        if field not in self._reduced:
            old, new, diff = change.reduced(field)
            reduced = dataclasses.replace(cause, old=old, new=new, diff=_diff(diff))
            self._reduced[field] = reduced, {**kwargs, **_changes(reduced), **self.indices}
        return self._reduced[field]

    def preset(self, preset: Mapping[str, Any]) -> None:
        """Put to the patch what the engine has there already; what handlers have put there is stronger."""

        def merge(target: dict[str, Any], source: Mapping[str, Any]) -> None:
            for key, value in source.items():
                if isinstance(value, dict) and isinstance(target.setdefault(key, {}), dict):
                    merge(target[key], value)
                else:
                    target.setdefault(key, value)

        merge(self.patch, preset)

    def deliver(self, results: Iterable[tuple[str, Any]]) -> None:
        """Put the results of handlers to the status of the object."""
        deliver(self.patch, results)


def deliver(patch: Patch, results: Iterable[tuple[str, Any]]) -> None:
    """Put the results of handlers to the status in the patch, by the ids of the handlers."""
    for id, result in results:
        if isinstance(result, dict):
            patch.setdefault("status", {}).setdefault(id, {}).update(result)
        else:
            patch.setdefault("status", {})[id] = result


def _diff(items: Iterable[tuple[str, tuple[str, ...], Any, Any]]) -> Diff:
    return Diff(DiffItem(OPERATIONS[op], field, old, new) for op, field, old, new in items)


def _changes(cause: ChangingCause) -> dict[str, Any]:
    return {"reason": cause.reason, "diff": cause.diff, "old": cause.old, "new": cause.new}


class Memories:
    """What is remembered of objects between their cycles, as long as they exist."""

    def __init__(self, memo: AnyMemo) -> None:
        super().__init__()
        self._memo = memo
        self._memos: dict[str, AnyMemo] = {}
        self._reviewed: dict[str, AnyMemo] = {}
        self._carried: dict[str, list[PatchFn]] = {}

    def recall(self, uid: str) -> AnyMemo:
        """The memo of the object; a copy of the operator's one when it is seen for the first time."""
        try:
            return self._memos[uid]
        except KeyError:
            reviewed = self._reviewed.pop(uid, None)
            memo = self._memos[uid] = self._fresh() if reviewed is None else reviewed
            return memo

    def review(self, uid: str, *, ephemeral: bool) -> AnyMemo:
        """The memo of a reviewed object; a throw-away one for an object that might never exist.

        Objects that were only seen in reviews may vanish unnoticed: of them, only so many are remembered.
        """
        if uid in self._memos:
            return self._memos[uid]
        memo = self._reviewed.pop(uid, None)
        if memo is None:
            memo = self._fresh()
        if not ephemeral:
            self._reviewed[uid] = memo
            if len(self._reviewed) > MAX_REVIEWED:
                del self._reviewed[next(iter(self._reviewed))]
        return memo

    def _fresh(self) -> AnyMemo:
        # The generic copying is slow, and most memos are of this type.
        return Memo(self._memo) if type(self._memo) is Memo else copy.copy(self._memo)

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._reviewed.pop(uid, None)
        self._memos.pop(uid, None)
        self._carried.pop(uid, None)

    def carry(self, uid: str, fns: Iterable[PatchFn]) -> None:
        """Keep the functions that could not be applied for the next cycle."""
        self._carried[uid] = list(fns)

    def take_carried(self, uid: str) -> list[PatchFn]:
        """The functions that could not be applied in the previous cycle."""
        return self._carried.pop(uid, [])
