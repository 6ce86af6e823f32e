"""Calls of daemons and timers, with their live bodies, patches, and stop flags.

The engine schedules the calls and decides on stopping. Sleeping daemons have no tasks and no threads.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kopf._intents.handlers import ResourceHandler, SpawningHandler, TimerHandler
from kopf._intents.settings import OperatorSettings
from kopf._objects.bodies import Body, release_views
from kopf._objects.resources import Resource
from kopf._objects.stoppers import DaemonStoppingReason
from kopf._runtime import bridge
from kopf._runtime.daemon_instances import DaemonInstance, DaemonObject, VirtualWait
from kopf._runtime.eager_tasks import start_task
from kopf._runtime.handling import store_results
from kopf._runtime.invocation import CallResult, Invoker, PreparedHandler
from kopf._runtime.loggers import full_name
from kopf._runtime.memos import MemoRegistry
from kopf._runtime.work_tracking import work_tracker_var

ABANDONED = DaemonStoppingReason.DAEMON_ABANDONED.value


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
        complete: Callable[[bridge.CallDaemon | bridge.StopDaemons], None],
    ) -> None:
        super().__init__()
        self._handlers = handlers
        self._prepared_handlers = prepared_handlers
        self._settings = settings
        self._memos = memos
        self._indices = indices
        self._invoker = invoker
        self._complete = complete
        # Each version of the resource has its own body of the object.
        self._objects: dict[tuple[str, Resource], DaemonObject] = {}
        self._instances: dict[int, DaemonInstance] = {}
        self._loop = asyncio.get_running_loop()
        self._grace_periods: set[asyncio.Task[None]] = set()
        self._tracker = work_tracker_var.get()

    def request_handlers(self) -> dict[type[Any], Callable[[Any], None]]:
        """The handlers of the engine's requests, by the types of the requests."""
        return {
            bridge.CallDaemon: self._call_daemon,
            bridge.GetInitialDelay: self._get_initial_delay,
            bridge.StopDaemons: self._stop_daemons,
            bridge.ObjectUpdated: self._update_objects,
            bridge.DaemonEnded: self._end_daemon,
        }

    def abandon(self) -> None:
        """Abandon the calls that have not ended before the end of the operator."""
        tasks = {instance.task for instance in self._instances.values() if instance.task is not None}
        self._invoker.pool.abandon(tasks)

    def body(self, uid: str, resource: Resource) -> Body | None:
        """The live body of the object, if it has daemons: all handlers of that version share it."""
        daemon_object = self._objects.get((uid, resource))
        return daemon_object.body if daemon_object is not None else None

    def find(self, instance: int) -> DaemonInstance | None:
        """The daemon or timer instance with this number."""
        return self._instances.get(instance)

    def _get_or_create(
        self, job: bridge.CallDaemon | bridge.GetInitialDelay, object: bridge.Object
    ) -> DaemonInstance:
        instance = self._instances.get(job.run)
        if instance is None:
            uid = job.uid
            daemon_object = self._objects.get((uid, job.resource))
            if daemon_object is None:
                daemon_object = DaemonObject(uid, object, job.resource, self._memos, self._settings)
                self._objects[uid, job.resource] = daemon_object
            daemon_object.count += 1
            tracker = self._tracker
            waiter = (
                VirtualWait(tracker, tracker.clock, job.run)
                if tracker is not None and tracker.clock is not None
                else None
            )
            instance = self._instances[job.run] = DaemonInstance(
                daemon_object, self._prepared_handlers[job.handler], self._indices, waiter
            )
        return instance

    def _call_daemon(self, job: bridge.CallDaemon) -> None:
        # A call of a daemon can last for days: it must not keep the state that it started with.
        instance = self._get_or_create(job, job.take_object())
        instance.reset_patch(job.keep_fns)
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

    async def _call(self, instance: DaemonInstance, job: bridge.CallDaemon) -> None:
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

    def _finish_call(
        self, instance: DaemonInstance, job: bridge.CallDaemon, call_result: CallResult | None
    ) -> None:
        if instance.job is not job:
            return  # it is completed already
        instance.job = instance.task = None
        if isinstance(instance.prepared.handler, TimerHandler):
            release_views(instance.daemon_object.body)
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

    def _get_initial_delay(self, job: bridge.GetInitialDelay) -> None:
        instance = self._get_or_create(job, job.object)
        handler = self._handlers[job.handler]
        try:
            delay = handler.initial_delay if isinstance(handler, SpawningHandler) else None
            job.complete(float(delay(**instance.cause.kwargs)) if callable(delay) else delay)
        except Exception as e:
            instance.daemon_object.logger.exception(
                f"{handler} cannot compute its initial delay, and ends: {e}"
            )
            job.complete(None)

    def _stop_daemons(self, job: bridge.StopDaemons) -> None:
        stopping: list[DaemonInstance] = []
        unresponsive: list[str] = []
        for number, reasons, cancel in job.signals:
            instance = self._instances.get(number)
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
        # Last: warnings can be turned into errors, and the engine waits for the completion.
        for text in unresponsive:
            warnings.warn(text, ResourceWarning, stacklevel=1)

    async def _grace_period(self, job: bridge.StopDaemons, runs: Sequence[DaemonInstance]) -> None:
        """Wait for the instances: for the timeout, or, if none is set, for some turns of the loop."""
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

    def _update_objects(self, job: bridge.ObjectUpdated) -> None:
        daemon_object = None
        for number in job.runs:
            instance = self._instances.get(number)
            if instance is not None and instance.daemon_object is not daemon_object:
                daemon_object = instance.daemon_object
                daemon_object.update(job.object)

    def _end_daemon(self, job: bridge.DaemonEnded) -> None:
        instance = self._instances.pop(job.run, None)
        if instance is None:
            return
        instance.stopper.set(DaemonStoppingReason(job.reasons))
        instance.close()
        daemon_object = instance.daemon_object
        daemon_object.count -= 1
        key = daemon_object.uid, daemon_object.resource
        if daemon_object.count == 0 and self._objects.get(key) is daemon_object:
            del self._objects[key]
            release_views(daemon_object.body)
