"""Calls of daemons and timers, with their live bodies, patches, and stop flags.

The engine schedules the calls and decides on stopping. Sleeping daemons have no tasks and no threads.
"""

from __future__ import annotations

import asyncio
import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from kopf._intents.handlers import SpawningHandler, TimerHandler
from kopf._objects.bodies import Body, release_views
from kopf._objects.patches import is_empty
from kopf._objects.resources import Resource
from kopf._objects.stoppers import DaemonStoppingReason
from kopf._objects.typedefs import HandlerId
from kopf._runtime import bridge
from kopf._runtime.cycle_context import store_results
from kopf._runtime.daemon_instances import DaemonInstance, DaemonObject, VirtualWait
from kopf._runtime.eager_tasks import start_task
from kopf._runtime.environment import HandlerEnvironment
from kopf._runtime.errors import ENDING_ERRORS, message_of
from kopf._runtime.work_tracking import work_tracker_var

ABANDONED = DaemonStoppingReason.DAEMON_ABANDONED.value


class Daemons:
    """The daemons and timers of one operator."""

    def __init__(
        self,
        environment: HandlerEnvironment,
        complete: Callable[[bridge.CallDaemon | bridge.StopDaemons], None],
    ) -> None:
        super().__init__()
        self._environment = environment
        self._invoker = environment.invoker
        self._complete = complete
        # Each version of the resource has its own body of the object.
        self._objects: dict[str, dict[Resource, DaemonObject]] = {}
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
        by_resource = self._objects.get(uid)
        if by_resource is None:
            return None
        daemon_object = by_resource.get(resource)
        return daemon_object.body if daemon_object is not None else None

    def find(self, instance: int) -> DaemonInstance | None:
        """The daemon or timer instance with this number."""
        return self._instances.get(instance)

    def _create(
        self, call: bridge.CallDaemon | bridge.GetInitialDelay, object: bridge.Object
    ) -> DaemonInstance:
        uid = call.uid
        by_resource = self._objects.setdefault(uid, {})
        daemon_object = by_resource.get(call.resource)
        if daemon_object is None:
            memos, settings = self._environment.memos, self._environment.settings
            daemon_object = DaemonObject(uid, object, call.resource, memos, settings)
            by_resource[call.resource] = daemon_object
        daemon_object.count += 1
        tracker, run, waiter = self._tracker, call.run, None
        if tracker is not None and tracker.clock is not None:
            waiter = VirtualWait(tracker, tracker.clock, run, lambda: self._report_running(run))
        prepared = self._environment.prepared_handlers[call.handler]
        instance = DaemonInstance(daemon_object, prepared, self._environment.indices, waiter)
        self._instances[run] = instance
        return instance

    def _report_running(self, run: int) -> None:
        """Report that a call executes its own code, at first or after a wait."""
        instance, tracker = self._instances.get(run), self._tracker
        if instance is None or instance.call is None or tracker is None:
            return
        # The call of a timer ends by itself; that of a daemon may last as long as the object.
        is_timer = isinstance(instance.prepared.handler, TimerHandler)
        report = tracker.work_started if is_timer else tracker.daemon_running
        report(run, self._task_name(instance))

    def _task_name(self, instance: DaemonInstance) -> str:
        return f"{instance.prepared.label} of {instance.daemon_object.full_name}"

    def _call_daemon(self, call: bridge.CallDaemon) -> None:
        # A call of a daemon can last for days: it must not keep the state that it started with.
        instance = self._instances.get(call.run)
        if instance is None:
            instance = self._create(call, call.take_object())
        else:
            call.release_object()
        instance.reset_patch(call.keep_fns)
        logger = instance.daemon_object.logger
        try:
            arguments = instance.cause.arguments()
        except Exception as e:  # such as of a memo that cannot be copied
            call.reply(self._invoker.settle_error(instance.prepared, call.attempt, e, logger))
            return self._complete(call)
        instance.call = call
        if self._tracker is not None:
            self._report_running(call.run)
        handler_call = bridge.HandlerCall(
            self._invoker,
            instance.prepared,
            call.attempt,
            arguments,
            logger,
            ended=functools.partial(self._finish_call, instance, call),
        )
        task = start_task(self._loop, handler_call, name=self._task_name(instance), context=instance.context)
        if instance.call is call:
            instance.task = task
            if instance.cancelled:
                self._cancel(instance)

    def _cancel(self, instance: DaemonInstance) -> None:
        instance.cancelled = True
        if instance.task is not None and instance.call is not None:
            instance.task.cancel()

    def _finish_call(
        self, instance: DaemonInstance, call: bridge.CallDaemon, handler_call: bridge.HandlerCall
    ) -> None:
        if instance.call is not call:
            return  # it is completed already
        instance.call = instance.task = None
        if isinstance(instance.prepared.handler, TimerHandler):
            release_views(instance.daemon_object.body)
        if self._tracker is not None:
            self._tracker.work_finished(call.run)
            self._tracker.daemon_waiting(call.run)
        if instance.completion is not None and not instance.completion.done():
            instance.completion.set_result(None)
        outcome = handler_call.outcome_or_none
        if outcome is None:
            call.reply()
        else:
            try:
                result = handler_call.result
                if result is not None:
                    results: list[tuple[HandlerId, Any]] = []
                    logger = instance.daemon_object.logger
                    self._invoker.add_result(results, result, instance.prepared, logger)
                    store_results(instance.patch, results)
                patch = instance.patch_or_none
                if patch is None or is_empty(patch):
                    call.reply(outcome)
                else:
                    call.reply(outcome, patch if len(patch) else None, bool(patch.fns))
            except Exception as e:
                label = call.attempt.label
                instance.daemon_object.logger.exception(
                    f"{label} has left a patch that cannot be sent, and ends: {e}"
                )
                call.reply()
        self._complete(call)

    def _get_initial_delay(self, host_task: bridge.GetInitialDelay) -> None:
        instance = self._instances.get(host_task.run)
        if instance is None:
            instance = self._create(host_task, host_task.object)
        handler = instance.prepared.handler
        try:
            delay = handler.initial_delay if isinstance(handler, SpawningHandler) else None
            if callable(delay):
                delay = delay(**instance.cause.kwargs)
            host_task.complete(0.0 if delay is None else float(delay))
        except ENDING_ERRORS:
            raise
        except BaseException as e:
            instance.daemon_object.logger.exception(
                f"{handler} cannot compute its initial delay, and ends: {message_of(e)}"
            )
            host_task.complete(None)

    def _stop_daemons(self, host_task: bridge.StopDaemons) -> None:
        stopping: list[DaemonInstance] = []
        unresponsive: list[str] = []
        for number, reasons, cancel in host_task.signals:
            instance = self._instances.get(number)
            if instance is None:
                continue
            instance.stopper.set(DaemonStoppingReason(reasons))
            if cancel:
                self._cancel(instance)
            if reasons & ABANDONED:
                unresponsive.append(f"{instance.prepared.handler} did not exit in time.")
            elif instance.call is not None:
                stopping.append(instance)
        if stopping:
            task = self._loop.create_task(self._grace_period(host_task, stopping), name="daemon stopper")
            self._grace_periods.add(task)
            task.add_done_callback(self._grace_periods.discard)
        else:
            self._complete(host_task)
        # Last: warnings can be turned into errors, and the engine waits for the completion.
        for text in unresponsive:
            warnings.warn(text, ResourceWarning, stacklevel=1)

    async def _grace_period(self, host_task: bridge.StopDaemons, runs: Sequence[DaemonInstance]) -> None:
        """Wait for the instances: for the timeout, or, if none is set, for some turns of the loop."""
        try:
            settings = self._environment.settings.background
            timeout = settings.instant_exit_timeout
            if timeout is not None:
                futures = [self._completion_of(instance) for instance in runs if instance.call is not None]
                if futures:
                    await asyncio.wait(futures, timeout=timeout)
            else:
                for _ in range(settings.instant_exit_zero_time_cycles or 0):
                    if all(instance.call is None for instance in runs):
                        break
                    await asyncio.sleep(0)
        finally:
            self._complete(host_task)

    def _completion_of(self, instance: DaemonInstance) -> asyncio.Future[None]:
        if instance.completion is None or instance.completion.done():
            instance.completion = self._loop.create_future()
        return instance.completion

    def _update_objects(self, host_task: bridge.ObjectUpdated) -> None:
        daemon_object = None
        for number in host_task.runs:
            instance = self._instances.get(number)
            if instance is not None and instance.daemon_object is not daemon_object:
                daemon_object = instance.daemon_object
                daemon_object.update(host_task.object)

    def _end_daemon(self, host_task: bridge.DaemonEnded) -> None:
        instance = self._instances.pop(host_task.run, None)
        if instance is None:
            return
        instance.stopper.set(DaemonStoppingReason(host_task.reasons))
        instance.close()
        daemon_object = instance.daemon_object
        daemon_object.count -= 1
        by_resource = self._objects.get(daemon_object.uid, {})
        if daemon_object.count == 0 and by_resource.get(daemon_object.resource) is daemon_object:
            del by_resource[daemon_object.resource]
            if not by_resource:
                del self._objects[daemon_object.uid]
            release_views(daemon_object.body)
