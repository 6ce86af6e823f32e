"""What is kept while one object is being handled: one body, one patch, one memo for all handlers of a cycle.
It owns the arguments of handlers; it must not know when handlers are called."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kopf._intents.causes import ResourceCause
from kopf._intents.handlers import Handler, ResourceHandler
from kopf._intents.settings import OperatorSettings
from kopf._objects.bodies import Body
from kopf._objects.memos import AnyMemo, Memo
from kopf._objects.patches import Patch, PatchFn
from kopf._objects.resources import Resource
from kopf._objects.typedefs import RawEventType
from kopf._runtime.bridge import Change, Object
from kopf._runtime.causes import (
    LazyChangingCause,
    LazyIndexingCause,
    LazySpawningCause,
    LazyWatchingCause,
    diff_of,
    lazily,
)
from kopf._runtime.loggers import LocalObjectLogger, ObjectLogger

MAX_REVIEWED = 10_000

_NOT_YET = object()


class Cycle:
    """One cycle of one object, from its first request until it is closed."""

    __slots__ = (
        "_changing",
        "_local_logger",
        "_logger",
        "_memo",
        "_memories",
        "_patch",
        "_reduced",
        "_watching",
        "body",
        "cancelled",
        "error",
        "essence",
        "fns",
        "indices",
        "object",
        "replaced",
        "resource",
        "sent",
        "settings",
        "shared",
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
        memories: Memories,
        settings: OperatorSettings,
        indices: Mapping[str, Any],
        fns: Iterable[PatchFn] = (),
        body: Body | None = None,
    ) -> None:
        self.object = object
        self.uid = uid
        self.resource = resource
        self.type = type
        self.settings = settings
        self.indices = indices
        self.body = body if body is not None else Body(object)
        self.shared = body is not None  # it is that of the object's daemons, too
        self.fns = fns  # what the previous cycle has left for the patch
        self._memories = memories
        self._memo: AnyMemo = _NOT_YET
        self._patch: Patch | None = None
        self._logger: ObjectLogger | None = None
        self._local_logger: LocalObjectLogger | None = None
        self.error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None  # of a script that has to wait
        self.cancelled = False
        self.essence: Any = None  # as the user's storages have built it, if there are any
        self.sent = False  # whether a patch was sent to the engine, and has to be replaced by what it becomes
        self.replaced: dict[int, Any] = {}  # handlers that the user's lifecycle has returned instead of ours
        self._watching: ResourceCause | None = None
        self._changing: ResourceCause | None = None
        self._reduced: dict[tuple[str, ...], ResourceCause] | None = None

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

    @property
    def memo(self) -> AnyMemo:
        """The memo of the object."""
        if self._memo is _NOT_YET:
            self._memo = self._memories.recall(self.uid)
        return self._memo

    @property
    def patch(self) -> Patch:
        """What is to be changed in the object."""
        if self._patch is None:
            self._patch = Patch(None, body=self.body, fns=self.fns)
        return self._patch

    @property
    def patched(self) -> Patch | None:
        """The patch, if anybody was interested in it so far."""
        return self.patch if self.fns else self._patch

    def deliver(self, results: Sequence[tuple[str, Any]]) -> None:
        """Put the results of handlers to the status of the object."""
        if results:
            deliver(self.patch, results)

    def is_clean(self) -> bool:
        """Whether nobody has put anything into the patch so far."""
        patch = self.patched
        return patch is None or (len(patch) == 0 and not patch.fns)

    def indexing(self) -> ResourceCause:
        """The cause for index functions. Their patch goes nowhere."""
        cause: ResourceCause = lazily(LazyIndexingCause, self)
        return cause

    def watching(self) -> ResourceCause:
        """The cause for handlers of events."""
        if self._watching is None:
            self._watching = lazily(LazyWatchingCause, self)
        return self._watching

    def spawning(self) -> ResourceCause:
        """The cause for the filters of daemons and timers."""
        cause: ResourceCause = lazily(LazySpawningCause, self)
        return cause

    def changing(self, change: Change) -> ResourceCause:
        """The cause for handlers of changes, for the object as a whole."""
        if self._changing is None:
            self._changing = lazily(LazyChangingCause, self, change)
        return self._changing

    def changing_of(self, change: Change, handler: Handler) -> ResourceCause:
        """The cause for a handler of changes; if it has a field, for this field only."""
        cause = self.changing(change)
        field = handler.field if isinstance(handler, ResourceHandler) else None
        if not field:
            return cause
        if self._reduced is None:
            self._reduced = {}
        if field not in self._reduced:
            old, new, diff = change.reduced(field)
            reduced = lazily(LazyChangingCause, self, change)
            reduced.old, reduced.new, reduced.diff = old, new, diff_of(diff)
            self._reduced[field] = reduced
        return self._reduced[field]

    def release(self) -> None:
        """Let go what refers back to here, and so would wait for the garbage collector."""
        self._watching = self._changing = self._reduced = self.task = self.error = None
        if not self.shared:
            self.body._release()
        if self._patch is not None:
            self._patch._release()

    def preset(self, preset: Mapping[str, Any]) -> None:
        """Put to the patch what the engine has there already; what handlers have put there is stronger."""

        def merge(target: dict[str, Any], source: Mapping[str, Any]) -> None:
            for key, value in source.items():
                if isinstance(value, dict) and isinstance(target.setdefault(key, {}), dict):
                    merge(target[key], value)
                else:
                    target.setdefault(key, value)

        merge(self.patch, preset)


def deliver(patch: Patch, results: Iterable[tuple[str, Any]]) -> None:
    """Put the results of handlers to the status in the patch, by the ids of the handlers."""
    for id, result in results:
        try:
            status = patch.setdefault("status", {})
            if isinstance(result, dict):
                status.setdefault(id, {}).update(result)
            else:
                status[id] = result
        except (AttributeError, TypeError) as e:
            raise TypeError(
                f"The result of {id!r} does not fit into the patch, where handlers have put something else "
                f"into the status: {e}"
            ) from e


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
