"""Instances of daemons and timers, with the live body that all instances of one object share."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping
from typing import Any

from kopf._objects.bodies import Body, replace_source
from kopf._objects.patches import Patch, is_empty, release_views
from kopf._objects.resources import Resource
from kopf._objects.stoppers import DaemonStopper, FlagSetter
from kopf._runtime import bridge
from kopf._runtime.causes import LazyDaemonCause, make_cause
from kopf._runtime.context import cause_var
from kopf._runtime.invocation import PreparedHandler
from kopf._runtime.loggers import ObjectLogger, full_name
from kopf._runtime.memos import MemoRegistry
from kopf._runtime.work_tracking import Clock, WorkTracker


class DaemonObject:
    """An object with daemons or timers: its live body, logger, and memo."""

    __slots__ = ("_logger", "_memos", "_settings", "body", "count", "full_name", "object", "resource", "uid")

    def __init__(
        self, uid: str, object: bridge.Object, resource: Resource, memos: MemoRegistry, settings: Any
    ) -> None:
        self.uid = uid
        self.object = object
        self.full_name = full_name(object.namespace, object.name)
        self.resource = resource
        self.body = Body(object)
        self.count = 0
        self._memos = memos
        self._settings = settings
        self._logger: ObjectLogger | None = None

    @property
    def logger(self) -> ObjectLogger:
        """The logger of the object."""
        if self._logger is None:
            self._logger = ObjectLogger(body=self.body, settings=self._settings)
        return self._logger

    @property
    def memo(self) -> Any:
        """The memo of the object."""
        return self._memos.get(self.uid)

    def update(self, object: bridge.Object) -> None:
        """Replace the state of the object, also in the views of the body."""
        self.object = object
        replace_source(self.body, object)


class DaemonInstance:
    """One daemon or timer of one object, from its first call until it is dismissed.

    There can be as many as objects: between calls, it keeps no views and no arguments.
    """

    __slots__ = (
        "_stopper",
        "call",
        "cancelled",
        "cause",
        "completion",
        "context",
        "daemon_object",
        "error",
        "indices",
        "patch_or_none",
        "prepared",
        "task",
        "waiter",
    )

    def __init__(
        self,
        daemon_object: DaemonObject,
        prepared: PreparedHandler,
        indices: Mapping[str, Any],
        waiter: VirtualWait | None = None,
    ) -> None:
        self.daemon_object = daemon_object
        self.prepared = prepared
        self.indices = indices
        self.waiter = waiter
        self.patch_or_none: Patch | None = None  # None if it was not used so far
        self._stopper: DaemonStopper | None = None
        self.cause: Any = make_cause(LazyDaemonCause, daemon_object, self)
        # One context for all calls: the next call gets the variables that a call has set.
        self.context = contextvars.copy_context()
        self.context.run(cause_var.set, self.cause)
        self.call: bridge.CallDaemon | None = None  # the current call
        self.task: asyncio.Task[Any] | None = None  # the task of the current call
        self.completion: asyncio.Future[None] | None = None  # done when the current call ends
        self.cancelled = False  # a function in a thread continues, but its result is ignored
        self.error: BaseException | None = None

    @property
    def stopper(self) -> DaemonStopper:
        """The stop flag."""
        if self._stopper is None:
            self._stopper = FlagSetter(self.waiter)
        return self._stopper

    @property
    def stopped(self) -> Any:
        """The stop flag as the function gets it."""
        return self.stopper.async_waiter if self.prepared.is_async else self.stopper.sync_waiter

    @property
    def patch(self) -> Patch:
        """The patch of the current call."""
        if self.patch_or_none is None:
            self.patch_or_none = Patch(None, body=self.daemon_object.body)
        return self.patch_or_none

    def reset_patch(self, keep_fns: bool) -> None:
        """Create a patch for the next call; `keep_fns` keeps the functions that could not be applied."""
        patch = self.patch_or_none
        if patch is None or is_empty(patch):
            return
        self.patch_or_none = self.cause.patch = Patch(
            None, body=self.daemon_object.body, fns=patch.fns if keep_fns else ()
        )

    def close(self) -> None:
        """Break reference cycles, so that the objects are freed without the garbage collector."""
        del self.cause, self.context
        if self.patch_or_none is not None:
            release_views(self.patch_or_none)


class VirtualWait:
    """The waiting of a daemon in tests: by the clock that can be moved, and with reports to the tracker."""

    __slots__ = ("_clock", "_instance", "_report_running", "_tracker", "_waiting")

    def __init__(
        self, tracker: WorkTracker, clock: Clock, instance: int, report_running: Callable[[], None]
    ) -> None:
        self._tracker = tracker
        self._clock = clock
        self._instance = instance
        self._report_running = report_running
        self._waiting = False

    def _start(self) -> None:
        self._waiting = True
        self._tracker.daemon_waiting(self._instance)

    def _end(self) -> None:
        # Called when the wait ends: otherwise, the daemon would count as waiting until it wakes up.
        if self._waiting:
            self._waiting = False
            self._report_running()

    def wait_in_thread(self, predicate: Callable[[], bool], timeout: float | None) -> None:
        """Block the thread until the predicate is true, at most `timeout` seconds."""
        self._start()
        try:
            self._clock.wait_in_thread(predicate, timeout, self._end)
        finally:
            self._end()

    async def wait_in_loop(self, future: asyncio.Future[None], timeout: float | None) -> None:
        """Wait in the current event loop until the future is done, at most `timeout` seconds."""
        self._start()
        try:
            await self._clock.wait_in_loop(future, timeout, self._end)
        finally:
            self._end()

    def on_set(self) -> None:
        """Let the threads that wait check their predicates."""
        self._end()
        self._clock.notify()
