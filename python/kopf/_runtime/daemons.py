"""Calls of daemons and timers, with their live bodies, patches, and stop flags.

The engine schedules the calls and decides on stopping. A daemon or timer that sleeps has no task and no
thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kopf._intents.handlers import ResourceHandler, SpawningHandler, TimerHandler
from kopf._intents.settings import OperatorSettings
from kopf._objects.bodies import Body
from kopf._objects.patches import Patch
from kopf._objects.resources import Resource
from kopf._objects.stoppers import DaemonStopper, DaemonStoppingReason
from kopf._runtime import bridge
from kopf._runtime.causes import LazyDaemonCause, make_cause
from kopf._runtime.context import cause_var
from kopf._runtime.eager_tasks import start_task
from kopf._runtime.handling import store_results
from kopf._runtime.invocation import CallResult, Invoker, PreparedHandler
from kopf._runtime.loggers import ObjectLogger, full_name
from kopf._runtime.memos import MemoRegistry
from kopf._runtime.work_tracking import Clock, WorkTracker, work_tracker_var

ABANDONED = DaemonStoppingReason.DAEMON_ABANDONED.value


class DaemonObject:
    """An object with daemons or timers: its live body, and what all of them share."""

    __slots__ = ("_logger", "_memos", "_settings", "body", "count", "object", "resource", "uid")

    def __init__(
        self, uid: str, object: bridge.Object, resource: Resource, memos: MemoRegistry, settings: Any
    ) -> None:
        self.uid = uid
        self.object = object
        self.resource = resource
        self.body = Body(object)
        self.count = 0
        self._memos = memos
        self._settings = settings
        self._logger: ObjectLogger | None = None

    @property
    def logger(self) -> ObjectLogger:
        """The logger of all of them."""
        if self._logger is None:
            self._logger = ObjectLogger(body=self.body, settings=self._settings)
        return self._logger

    @property
    def memo(self) -> Any:
        """The memo of the object."""
        return self._memos.get(self.uid)

    def update(self, object: bridge.Object) -> None:
        """Take a new state of the object; the views of the old one show it."""
        self.object = object
        self.body._replace_with(object)


class DaemonInstance:
    """One daemon or timer of one object, from its first call to its end.

    There can be as many as objects: between calls, it keeps no views and arguments.
    """

    __slots__ = (
        "_patch",
        "_stopper",
        "cancelled",
        "cause",
        "completion",
        "context",
        "daemon_object",
        "error",
        "indices",
        "job",
        "prepared",
        "task",
        "waiter",
    )

    def __init__(
        self,
        daemon_object: DaemonObject,
        prepared: PreparedHandler,
        indices: Mapping[str, Any],
        waiter: _VirtualWait | None = None,
    ) -> None:
        self.daemon_object = daemon_object
        self.prepared = prepared
        self.indices = indices
        self.waiter = waiter
        self._patch: Patch | None = None
        self._stopper: DaemonStopper | None = None
        self.cause: Any = make_cause(LazyDaemonCause, self)
        # One context for all calls, as if it were one task: what a call has set, the next one sees.
        self.context = contextvars.copy_context()
        self.context.run(cause_var.set, self.cause)
        self.job: bridge.Run | None = None  # the call that is going on
        self.task: asyncio.Task[Any] | None = None  # where the call is waiting
        self.completion: asyncio.Future[None] | None = None  # for those who wait for the end of the call
        self.cancelled = False
        self.error: BaseException | None = None

    @property
    def logger(self) -> ObjectLogger:
        """The logger."""
        return self.daemon_object.logger

    @property
    def memo(self) -> Any:
        """The memo of the object."""
        return self.daemon_object.memo

    @property
    def resource(self) -> Resource:
        """What kind of object it is."""
        return self.daemon_object.resource

    @property
    def body(self) -> Body:
        """The live body of the object."""
        return self.daemon_object.body

    @property
    def object(self) -> bridge.Object:
        """The object as it is now."""
        return self.daemon_object.object

    @property
    def stopper(self) -> DaemonStopper:
        """The flag by which it is asked to stop."""
        if self._stopper is None:
            self._stopper = DaemonStopper(self.waiter)
        return self._stopper

    @property
    def stopped(self) -> Any:
        """The same as the function sees it."""
        return self.stopper.async_waiter if self.prepared.is_async else self.stopper.sync_waiter

    @property
    def patch(self) -> Patch:
        """What the current call wants to change in the object."""
        if self._patch is None:
            self._patch = Patch(None, body=self.daemon_object.body)
        return self._patch

    @property
    def patch_or_none(self) -> Patch | None:
        """The patch, if anybody was interested in it so far."""
        return self._patch

    def reset_patch(self, keep_fns: bool) -> None:
        """Take an empty patch for the next call; carry the functions that could not be applied."""
        patch = self._patch
        if patch is None or (len(patch) == 0 and not patch.fns):
            return
        self._patch = self.cause.patch = Patch(
            None, body=self.daemon_object.body, fns=patch.fns if keep_fns else ()
        )

    def close(self) -> None:
        """Let go what refers back to here, and so would wait for the garbage collector."""
        del self.cause, self.context
        if self._patch is not None:
            self._patch._release()

    def cancel(self) -> None:
        """Cancel the call. A function in a thread goes on, but what comes of it is ignored."""
        self.cancelled = True
        if self.task is not None:
            self.task.cancel()


class _VirtualWait:
    """Where a daemon of a test waits for its moments: the pulse is told when it does, and when not."""

    __slots__ = ("_clock", "_instance", "_tracker", "_waiting")

    def __init__(self, tracker: WorkTracker, clock: Clock, instance: int) -> None:
        self._tracker = tracker
        self._clock = clock
        self._instance = instance
        self._waiting = False

    def _start(self) -> None:
        self._waiting = True
        self._tracker.daemon_waiting(self._instance)

    def _end(self) -> None:
        # Told by whoever ends the rest: so nobody finds the daemon asleep that is about to wake up.
        if self._waiting:
            self._waiting = False
            self._tracker.daemon_running(self._instance)

    def wait_in_thread(self, predicate: Callable[[], bool], timeout: float | None) -> None:
        """Block the thread until it holds, at most `timeout` seconds."""
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
        """Let those who wait in threads look again."""
        self._end()
        self._clock.notify()


class Daemons:
    """The daemons and timers of one operator."""

    def __init__(
        self,
        *,
        handlers: Sequence[ResourceHandler],
        prepared_handlers: Sequence[PreparedHandler],
        settings: OperatorSettings,
        memos: MemoRegistry,
        indices: Mapping[str, Any],
        invoker: Invoker,
        complete: Callable[[bridge.Run | bridge.Signal], None],
    ) -> None:
        super().__init__()
        self._handlers = handlers
        self._prepared_handlers = prepared_handlers
        self._settings = settings
        self._memos = memos
        self._indices = indices
        self._invoker = invoker
        self._complete = complete
        # Of one object, each version of its kind has a body of its own.
        self._objects: dict[tuple[str, Resource], DaemonObject] = {}
        self._runs: dict[int, DaemonInstance] = {}
        self._loop = asyncio.get_running_loop()
        self._grace_periods: set[asyncio.Task[None]] = set()
        self._tracker = work_tracker_var.get()

    def request_handlers(self) -> dict[type[Any], Callable[[Any], None]]:
        """Who takes which requests of the engine."""
        return {
            bridge.Run: self._receive_run,
            bridge.Delay: self._receive_delay,
            bridge.Signal: self._receive_signal,
            bridge.Refresh: self._receive_refresh,
            bridge.Dismiss: self._receive_dismiss,
        }

    def abandon(self) -> None:
        """Let the calls go that are still there at the end of the operator: they did not exit in time."""
        tasks = {instance.task for instance in self._runs.values() if instance.task is not None}
        self._invoker.pool.abandon(tasks)

    def body(self, uid: str, resource: Resource) -> Body | None:
        """The live body of the object, if it has any: all handlers in that version share it."""
        daemon_object = self._objects.get((uid, resource))
        return daemon_object.body if daemon_object is not None else None

    def find(self, instance: int) -> DaemonInstance | None:
        """A daemon or a timer by its number."""
        return self._runs.get(instance)

    def _get_or_create(self, job: bridge.Run | bridge.Delay, object: bridge.Object) -> DaemonInstance:
        instance = self._runs.get(job.run)
        if instance is None:
            uid = job.uid
            daemon_object = self._objects.get((uid, job.resource))
            if daemon_object is None:
                daemon_object = DaemonObject(uid, object, job.resource, self._memos, self._settings)
                self._objects[uid, job.resource] = daemon_object
            daemon_object.count += 1
            tracker = self._tracker
            waiter = (
                _VirtualWait(tracker, tracker.clock, job.run)
                if tracker is not None and tracker.clock is not None
                else None
            )
            instance = self._runs[job.run] = DaemonInstance(
                daemon_object, self._prepared_handlers[job.handler], self._indices, waiter
            )
        return instance

    def _receive_run(self, job: bridge.Run) -> None:
        # A daemon's call may go on for days: it is not to keep the state that it began with.
        instance = self._get_or_create(job, job.take_object())
        instance.reset_patch(job.carry)
        instance.job = job
        if self._tracker is not None:
            is_timer = isinstance(instance.prepared.handler, TimerHandler)
            (self._tracker.work_started if is_timer else self._tracker.daemon_running)(job.run)
        object = instance.object
        name = f"{instance.prepared.label} of {full_name(object.namespace, object.name)}"
        task = start_task(self._loop, self._call(instance, job), name=name, context=instance.context)
        if instance.job is job:
            instance.task = task
            # A task can be cancelled before its first step.
            task.add_done_callback(lambda _: self._finish_call(instance, job, None))
            if instance.cancelled:
                task.cancel()

    async def _call(self, instance: DaemonInstance, job: bridge.Run) -> None:
        call_result: CallResult | None = None
        try:
            call_result = await self._invoker.invoke(
                instance.prepared,
                job.attempt,
                instance.cause.arguments,
                instance.daemon_object.logger,
                store_result=True,
            )
        except asyncio.CancelledError:
            pass  # it is logged already, and this is the only thing that happens in this task
        finally:
            self._finish_call(instance, job, call_result)

    def _finish_call(self, instance: DaemonInstance, job: bridge.Run, call_result: CallResult | None) -> None:
        if instance.job is not job:
            return  # it is answered
        instance.job = instance.task = None
        if isinstance(instance.prepared.handler, TimerHandler):
            instance.daemon_object.body._release()
        if self._tracker is not None:
            self._tracker.work_finished(job.run)
            self._tracker.daemon_waiting(job.run)
        if instance.completion is not None and not instance.completion.done():
            instance.completion.set_result(None)
        if call_result is None:
            job.answer()
        else:
            try:
                if call_result.result is not None:
                    store_results(instance.patch, [(instance.prepared.handler.id, call_result.result)])
                patch = instance.patch_or_none
                if patch is None:
                    job.answer(call_result.outcome)
                else:
                    job.answer(call_result.outcome, patch if len(patch) else None, bool(patch.fns))
            except Exception as e:
                label = job.attempt.label
                instance.daemon_object.logger.exception(
                    f"{label} has left a patch that cannot be sent, and ends: {e}"
                )
                job.answer()
        self._complete(job)

    def _receive_delay(self, job: bridge.Delay) -> None:
        instance = self._get_or_create(job, job.object)
        handler = self._handlers[job.handler]
        try:
            delay = handler.initial_delay if isinstance(handler, SpawningHandler) else None
            job.complete(float(delay(**instance.cause.kwargs)) if callable(delay) else delay)
        except Exception as e:
            instance.daemon_object.logger.exception(
                f"{handler} has failed to tell its initial delay, and ends: {e}"
            )
            job.complete(None)

    def _receive_signal(self, job: bridge.Signal) -> None:
        stopping: list[DaemonInstance] = []
        unresponsive: list[str] = []
        for number, reasons, cancel in job.signals:
            instance = self._runs.get(number)
            if instance is None:
                continue
            instance.stopper.set(DaemonStoppingReason(reasons))
            if cancel:
                instance.cancel()
            if reasons & ABANDONED:
                unresponsive.append(f"{instance.prepared.handler} did not exit in time.")
            elif instance.job is not None:
                stopping.append(instance)
        if stopping:
            task = self._loop.create_task(self._grace_period(job, stopping), name="daemon stopper")
            self._grace_periods.add(task)
            task.add_done_callback(self._grace_periods.discard)
        else:
            self._complete(job)
        # At last: warnings can be turned into errors, and the engine waits for the answer.
        for text in unresponsive:
            warnings.warn(text, ResourceWarning, stacklevel=1)

    async def _grace_period(self, job: bridge.Signal, runs: Sequence[DaemonInstance]) -> None:
        """Give them a moment to exit: some time, or, if none is set, some turns of the loop."""
        try:
            timeout = self._settings.background.instant_exit_timeout
            if timeout is not None:
                futures = [self._completion_of(instance) for instance in runs if instance.job is not None]
                if futures:
                    await asyncio.wait(futures, timeout=timeout)
            else:
                for _ in range(self._settings.background.instant_exit_zero_time_cycles or 0):
                    if all(instance.job is None for instance in runs):
                        break
                    await asyncio.sleep(0)
        finally:
            self._complete(job)

    def _completion_of(self, instance: DaemonInstance) -> asyncio.Future[None]:
        if instance.completion is None or instance.completion.done():
            instance.completion = self._loop.create_future()
        return instance.completion

    def _receive_refresh(self, job: bridge.Refresh) -> None:
        daemon_object = None
        for number in job.runs:
            instance = self._runs.get(number)
            if instance is not None and instance.daemon_object is not daemon_object:
                daemon_object = instance.daemon_object
                daemon_object.update(job.object)

    def _receive_dismiss(self, job: bridge.Dismiss) -> None:
        instance = self._runs.pop(job.run, None)
        if instance is None:
            return
        instance.stopper.set(DaemonStoppingReason(job.reasons))
        instance.close()
        daemon_object = instance.daemon_object
        daemon_object.count -= 1
        key = daemon_object.uid, daemon_object.resource
        if daemon_object.count == 0 and self._objects.get(key) is daemon_object:
            del self._objects[key]
            daemon_object.body._release()
