"""One processing cycle of one object: the body, the patch, the memo, and the causes for all its handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kopf._intents.causes import ResourceCause
from kopf._intents.handlers import Handler, ResourceHandler
from kopf._intents.settings import OperatorSettings
from kopf._objects import bodies, patches
from kopf._objects.bodies import Body
from kopf._objects.memos import AnyMemo
from kopf._objects.patches import Patch, PatchFn
from kopf._objects.resources import Resource
from kopf._objects.typedefs import RawEventType
from kopf._runtime.bridge import (
    CallChangeHandler,
    CallEventHandler,
    Change,
    ComputeKeys,
    InspectObject,
    Object,
)
from kopf._runtime.causes import (
    LazyChangingCause,
    LazyIndexingCause,
    LazySpawningCause,
    LazyWatchingCause,
    build_diff,
    make_cause,
)
from kopf._runtime.environment import HandlerEnvironment
from kopf._runtime.loggers import LocalObjectLogger, ObjectLogger, TerseObjectLogger
from kopf._runtime.memos import MemoRegistry

_UNSET = object()


class CycleContext:
    """One processing cycle of one object, from its first activation until it is closed."""

    __slots__ = (
        "_changing_cause",
        "_field_causes",
        "_local_logger",
        "_logger",
        "_memo",
        "_memos",
        "_patch",
        "_watching_cause",
        "body",
        "body_is_shared",
        "cancelled",
        "cancelled_handler",
        "deferred_fns",
        "error",
        "essence",
        "indices",
        "object",
        "patch_sent",
        "replaced_handlers",
        "resource",
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
        memos: MemoRegistry,
        settings: OperatorSettings,
        indices: Mapping[str, Any],
        deferred_fns: Iterable[PatchFn] = (),
        body: Body | None = None,
    ) -> None:
        self.object = object
        self.uid = uid
        self.resource = resource
        self.type = type
        self.settings = settings
        self.indices = indices
        self.body = body if body is not None else Body(object)
        self.body_is_shared = body is not None  # with the object's daemons
        self.deferred_fns = deferred_fns  # patch functions of the previous cycle that were not applied
        self._memos = memos
        self._memo: AnyMemo = _UNSET
        self._patch: Patch | None = None
        self._logger: ObjectLogger | None = None
        self._local_logger: LocalObjectLogger | None = None
        self.error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None  # of a activation that waits
        self.cancelled = False
        self.cancelled_handler: int | None = None  # the handler whose call was cancelled
        self.essence: Any = None  # as built by the user's storages, if there are any
        self.patch_sent = False  # whether a patch was sent: then a newer state of it must be sent, too
        self.replaced_handlers: dict[
            int, Any
        ] = {}  # handlers that the user's lifecycle returned instead of the declared ones
        self._watching_cause: ResourceCause | None = None
        self._changing_cause: ResourceCause | None = None
        self._field_causes: dict[tuple[str, ...], ResourceCause] | None = None

    def cancel(self, ended: Callable[[int | None], None] | None = None) -> None:
        """Cancel the current activation, or the next one; `ended` is called when its handlers have ended,
        with the one whose call was cancelled.
        """
        self.cancelled = True
        if self.task is not None:
            self.task.cancel()
        if ended is not None:
            if self.task is None or self.task.done():
                ended(None)
            else:
                self.task.add_done_callback(lambda _: ended(self.cancelled_handler))

    def record_cancelled(self, command: object) -> None:
        """Record whose call is cancelled by its command; index functions are recorded already."""
        if isinstance(command, CallEventHandler | CallChangeHandler):
            self.cancelled_handler = command.handler

    @property
    def logger(self) -> ObjectLogger:
        """The logger for change handlers."""
        if self._logger is None:
            self._logger = ObjectLogger(body=self.body, settings=self.settings)
        return self._logger

    @property
    def local_logger(self) -> LocalObjectLogger:
        """The logger for event handlers."""
        if self._local_logger is None:
            self._local_logger = LocalObjectLogger(body=self.body, settings=self.settings)
        return self._local_logger

    @property
    def terse_logger(self) -> TerseObjectLogger:
        """A new logger for index functions."""
        return TerseObjectLogger(body=self.body, settings=self.settings)

    @property
    def memo(self) -> AnyMemo:
        """The memo of the object."""
        if self._memo is _UNSET:
            self._memo = self._memos.get(self.uid)
        return self._memo

    @property
    def patch(self) -> Patch:
        """The patch of the object."""
        if self._patch is None:
            self._patch = Patch(None, body=self.body, fns=self.deferred_fns)
        return self._patch

    @property
    def separate_patch(self) -> Patch:
        """A new patch that goes nowhere."""
        return Patch(None, body=self.body)

    @property
    def event(self) -> dict[str, Any]:
        """The event as the watch has it. The values are those of the body."""
        return {"type": self.type, "object": self.object.to_dict()}

    @property
    def patch_or_none(self) -> Patch | None:
        """The patch, or None if it was not used so far."""
        return self.patch if self.deferred_fns else self._patch

    @property
    def unapplied_fns(self) -> Iterable[PatchFn]:
        """The patch functions for the next cycle, if they could not be applied."""
        # The handlers of a failed cycle are called again.
        return self.deferred_fns if self.error else self.patch.fns

    def store_results(self, results: Sequence[tuple[str, Any]]) -> None:
        """Put the results of handlers into the status of the patch."""
        store_results(self.patch, results)

    def indexing_cause(self) -> ResourceCause:
        """The cause for index functions; their patch is not applied."""
        cause: ResourceCause = make_cause(LazyIndexingCause, self)
        return cause

    def watching_cause(self) -> ResourceCause:
        """The cause for event handlers."""
        cause: Any = self._watching_cause
        if cause is None:
            cause = self._watching_cause = make_cause(LazyWatchingCause, self)
            # These are arguments of all handlers. Reading them later takes several times as long.
            cause.logger, cause.patch = self.local_logger, self.patch
            cause.indices, cause.type = self.indices, self.type
        return cause  # type: ignore[no-any-return]

    def spawning_cause(self) -> ResourceCause:
        """The cause for the filters of daemons and timers."""
        cause: ResourceCause = make_cause(LazySpawningCause, self)
        return cause

    def changing_cause(self, change: Change) -> ResourceCause:
        """The cause for change handlers, for the whole object."""
        if self._changing_cause is None:
            self._changing_cause = make_cause(LazyChangingCause, self, change)
        return self._changing_cause

    def cause_for(self, change: Change, handler: Handler) -> ResourceCause:
        """The cause for a change handler; if it has a field, only for this field."""
        cause = self.changing_cause(change)
        field = handler.field if isinstance(handler, ResourceHandler) else None
        if not field:
            return cause
        if self._field_causes is None:
            self._field_causes = {}
        if field not in self._field_causes:
            old, new, diff = change.reduced(field)
            field_cause = make_cause(LazyChangingCause, self, change)
            field_cause.old, field_cause.new, field_cause.diff = old, new, build_diff(diff)
            self._field_causes[field] = field_cause
        return self._field_causes[field]

    def suspend(self, *, keep_change: bool) -> None:
        """Drop what takes most memory: many cycles can wait at the same time, e.g. until patches are written.

        `keep_change` keeps the causes for change handlers.
        """
        self._watching_cause = self.task = None  # the task has a cause in its context
        self.object.release_values()
        if not keep_change:
            self._release_change()

    def _release_change(self) -> None:
        self._changing_cause = self._field_causes = None
        if not self.body_is_shared:
            bodies.release_views(self.body)

    def close(self) -> None:
        """Break reference cycles, so that the objects are freed without the garbage collector."""
        self._watching_cause = self.task = self.error = None
        self._release_change()
        if self._patch is not None:
            patches.release_views(self._patch)

    def prefill_patch(self, preset: Mapping[str, Any]) -> None:
        """Merge the engine's part into the patch; the values of handlers win."""

        def merge(target: dict[str, Any], source: Mapping[str, Any]) -> None:
            for key, value in source.items():
                if isinstance(value, dict) and isinstance(target.setdefault(key, {}), dict):
                    merge(target[key], value)
                else:
                    target.setdefault(key, value)

        merge(self.patch, preset)


class InspectedObject(CycleContext):
    """An object for which the functions of a declaration are called. They do not create its memo."""

    __slots__ = ()

    @classmethod
    def of(cls, host_task: InspectObject | ComputeKeys, environment: HandlerEnvironment) -> InspectedObject:
        """The object of a request for the functions of a declaration."""
        return cls(
            host_task.object,
            uid=host_task.object.uid or "",
            resource=host_task.resource,
            memos=environment.memos,
            settings=environment.settings,
            indices=environment.indices,
        )

    @property
    def memo(self) -> AnyMemo:
        """The memo of the object; a new one that is not kept if no handler has used it so far."""
        if self._memo is _UNSET:
            self._memo = self._memos.peek(self.uid)
        return self._memo


def store_results(patch: Patch, results: Iterable[tuple[str, Any]]) -> None:
    """Put the results of handlers into the status of the patch, by the ids of the handlers."""
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
