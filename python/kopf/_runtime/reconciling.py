"""Calls of reconcilers, and of the functions of their declarations.

The engine schedules the calls, writes their patches, and decides about retries. The module is imported only
by operators with reconcilers.
"""

from __future__ import annotations

import asyncio
import contextvars
import datetime
import functools
import logging
from collections.abc import Callable
from typing import Any

from kopf._intents.errors import ReconcileTimeoutError, TemporaryError
from kopf._intents.handlers import ReconcilingHandler
from kopf._intents.reconciling_settings import Backoff
from kopf._intents.requeue import Requeue
from kopf._objects import bodies, patches
from kopf._objects.bodies import Body
from kopf._objects.conditions import Conditions
from kopf._objects.patches import Patch
from kopf._objects.stoppers import DaemonStopper, DaemonStoppingReason, FlagSetter, release_waiter
from kopf._runtime import bridge
from kopf._runtime.api_argument import API
from kopf._runtime.causes import LazyReconcilingCause, make_cause
from kopf._runtime.children import Children
from kopf._runtime.conditions_argument import changes_for_engine
from kopf._runtime.context import cause_var
from kopf._runtime.cycle_context import store_results
from kopf._runtime.daemon_instances import VirtualWait
from kopf._runtime.eager_tasks import start_task
from kopf._runtime.environment import HandlerEnvironment
from kopf._runtime.errors import ENDING_ERRORS, text_of
from kopf._runtime.functions import ensure_executed
from kopf._runtime.invocation import EPOCH, errors_mode, to_json_result
from kopf._runtime.loggers import FrameworkMessage, ObjectLogger, full_name
from kopf._runtime.reconciler_functions import ObjectInspector
from kopf._runtime.work_tracking import work_tracker_var


class ReconcilerCall:
    """One call of a reconciler, until its writes have ended."""

    def __init__(
        self, host_task: bridge.CallReconciler, environment: HandlerEnvironment, waiter: VirtualWait | None
    ) -> None:
        prepared = environment.prepared_handlers[host_task.handler]
        handler = prepared.handler
        assert isinstance(handler, ReconcilingHandler)
        self.handler = handler
        self.host_task = host_task
        self.prepared = prepared
        self.resource = host_task.resource
        self.object = host_task.object
        self.body = Body(host_task.object)
        self.indices = environment.indices
        self.logger = ObjectLogger(body=self.body, settings=environment.settings)
        self.patch = Patch(None, body=self.body)
        self.conditions = Conditions(self.body)
        # Not by the alias: typing would try to set an attribute of the flag, at each call.
        self.stopper: DaemonStopper = FlagSetter(waiter)
        self.cause: Any = make_cause(LazyReconcilingCause, self, self)
        self.task: asyncio.Task[None] | None = None
        self.cancellation: str | None = None  # why the engine has cancelled it
        self.is_answered = False
        self.error: BaseException | None = None
        self._memos = environment.memos
        self.children: Children | None = None
        if handler.reads_children:
            readers = environment.invoker.children.get(host_task.handler, ())
            self.children = Children(handler.owns, readers, host_task.uid, host_task.object.namespace)

    @property
    def memo(self) -> Any:
        """The memo of the object."""
        return self._memos.get(self.host_task.uid)

    @property
    def stopped(self) -> Any:
        """The stop flag as the function gets it."""
        return self.stopper.async_waiter if self.prepared.is_async else self.stopper.sync_waiter

    def add_arguments(self, arguments: dict[str, Any]) -> None:
        """Add the arguments that only reconcilers have, and those of the attempt."""
        host_task = self.host_task
        arguments["param"] = self.handler.param
        arguments["retry"] = host_task.retry
        arguments["started"] = EPOCH + datetime.timedelta(0, 0, host_task.started)
        arguments["runtime"] = datetime.timedelta(0, host_task.runtime)
        arguments["deleting"] = host_task.deleting
        arguments["conditions"] = self.conditions
        if self.children is not None:
            arguments["children"] = self.children

    def close(self) -> None:
        """Break reference cycles, so that the objects are freed without the garbage collector."""
        del self.cause
        self.error = None
        bodies.release_views(self.body)
        patches.release_views(self.patch)
        release_waiter(self.stopper)


class Reconcilers:
    """The reconcilers of one operator."""

    def __init__(
        self, environment: HandlerEnvironment, complete: Callable[[bridge.CallReconciler], None]
    ) -> None:
        super().__init__()
        self._environment = environment
        self._settings = environment.settings
        self._invoker = environment.invoker
        self._complete = complete
        self._calls: dict[int, ReconcilerCall] = {}
        self._loop = asyncio.get_running_loop()
        self._tracker = work_tracker_var.get()
        self._inspector = ObjectInspector(environment)

    def request_handlers(self) -> dict[type[Any], Callable[[Any], None]]:
        """The handlers of the engine's requests, by the types of the requests."""
        return {
            bridge.CallReconciler: self._call_reconciler,
            bridge.StopReconciler: self._stop_reconciler,
            bridge.ReconcilerEnded: self._end_call,
            bridge.InspectObject: self._inspector.inspect,
        }

    def find(self, run: int) -> ReconcilerCall | None:
        """The call with this number."""
        return self._calls.get(run)

    def abandon(self) -> None:
        """Abandon the calls that have not ended before the end of the operator."""
        for call in self._calls.values():
            call.cancellation = call.cancellation or "stop"
        tasks = {call.task for call in self._calls.values() if call.task is not None}
        self._invoker.pool.abandon(tasks)

    def _call_reconciler(self, host_task: bridge.CallReconciler) -> None:
        tracker = self._tracker
        waiter = None
        prepared = self._environment.prepared_handlers[host_task.handler]
        name = f"{prepared.label} of {full_name(host_task.object.namespace, host_task.object.name)}"
        if tracker is not None:
            tracker.work_started(host_task.run, name)
            if tracker.clock is not None:
                report = functools.partial(self._report_running, host_task.run, name)
                waiter = VirtualWait(tracker, tracker.clock, host_task.run, report)
        call = self._calls[host_task.run] = ReconcilerCall(host_task, self._environment, waiter)
        context = contextvars.copy_context()
        context.run(cause_var.set, call.cause)
        task = start_task(
            self._loop,
            self._run(call),
            name=name,
            context=context,
            unbegun=functools.partial(self._answer, call, "cancelled"),
        )
        if not call.is_answered:
            call.task = task

    def _report_running(self, run: int, name: str) -> None:
        """Report that a call executes its own code after a wait: as a daemon, it may do so for long."""
        call = self._calls.get(run)
        if self._tracker is not None and call is not None and not call.is_answered:
            self._tracker.daemon_running(run, name)

    async def _run(self, call: ReconcilerCall) -> None:
        try:
            result, delay = await self._invoke(call)
            self._answer(call, result, delay, changes_for_engine(call.conditions, call.patch))
        except asyncio.CancelledError:
            self._answer(call, "cancelled")
        except Exception as e:
            call.error = e
            call.logger.exception(f"{call.prepared.label} has left a patch that cannot be sent: {e}")
            call.patch.clear()
            self._answer(call, "failed")
        finally:
            if not call.is_answered:
                self._answer(call, "cancelled")

    async def _invoke(self, call: ReconcilerCall) -> tuple[str, float | None]:
        """Call the function; the result for the engine, with its delay."""
        prepared, invoker = call.prepared, self._invoker
        task = None if prepared.is_async else asyncio.current_task()
        try:
            kwargs = call.cause.arguments()
            if invoker.api is not None and API not in kwargs:
                kwargs[API] = await invoker.api.provide(kwargs, is_async=prepared.is_async)
            invoker.enter_call(prepared, call.host_task.retry)
            returned = await invoker.start(prepared, call, kwargs, call.logger)
            if returned is not None:
                ensure_executed(prepared.fn, returned)
        except Requeue as e:
            returned = e.with_traceback(None)  # it refers to this frame
        except asyncio.CancelledError as e:
            if call.cancellation is None and not call.stopper.is_set():
                # The function has awaited a cancelled future.
                return self._fail(call, TemporaryError(f"cancelled by itself: {e!r}", delay=None))
            if call.cancellation != "timeout":
                raise
        except ENDING_ERRORS:
            raise
        except BaseException as e:
            return self._fail(call, e)
        finally:
            invoker.unlist(call, task)
        if call.cancellation == "timeout":  # the function may have suppressed it
            # Half-done changes are dropped, but the state of the call is true.
            call.patch.clear()
            call.conditions = Conditions(call.body)
            return self._fail(call, self._timeout_error(call), is_logged=not prepared.is_async)
        if isinstance(returned, Requeue):
            self._log_requeue(call, returned)
            self._set_condition(call, False, "Waiting", returned.reason)
            self._observe(call)
            return "requeued", returned.after
        if returned is not None:
            copied = to_json_result(returned, prepared, call.logger)
            if copied is not None and call.body.status.get(prepared.handler.id) != copied:
                store_results(call.patch, [(prepared.handler.id, copied)])
        self._set_condition(call, True, "Succeeded", "")
        self._observe(call)
        return "succeeded", None

    def _log_requeue(self, call: ReconcilerCall, requeue: Requeue) -> None:
        # Without a reason, it is usually a period: the lines of all objects would only fill the log.
        level = logging.INFO if requeue.reason else logging.DEBUG
        if call.logger.isEnabledFor(level):
            text = f"{call.prepared.label} is called again in {requeue.after:g} seconds"
            reason = f": {requeue.reason}" if requeue.reason else "."
            call.logger.log(level, FrameworkMessage(text + reason))

    def _timeout_error(self, call: ReconcilerCall) -> ReconcileTimeoutError:
        timeout = call.handler.reconcile_timeout or self._settings.reconciling.reconcile_timeout
        return ReconcileTimeoutError(f"The call has exceeded its timeout of {timeout:g} seconds.")

    def _fail(
        self, call: ReconcilerCall, error: BaseException, *, is_logged: bool = False
    ) -> tuple[str, float | None]:
        """Log the error of a call, unless it is logged already; the result for the engine, with its delay."""
        call.error = error
        self._set_condition(call, False, _reason_of(error), text_of(error))
        prepared, host_task = call.prepared, call.host_task
        attempt = bridge.Attempt(
            label=prepared.label,
            errors=errors_mode(call.handler),
            backoff=None,
            started=host_task.started,
            retry=host_task.retry,
        )
        outcome = self._invoker.settle_error(prepared, attempt, error, call.logger, is_logged=is_logged)
        result, delay = outcome.reconcile_result(isinstance(error, ReconcileTimeoutError))
        if result == "failed" and delay is None:
            delay = self._backoff(call, error)
        return result, delay

    def _backoff(self, call: ReconcilerCall, error: BaseException) -> float | None:
        """The delay of a function in `backoff`; None: the engine computes it."""
        backoff = call.handler.backoff
        if not callable(backoff) or isinstance(backoff, Backoff):
            return None
        try:
            delay = float(backoff(**{**call.cause.arguments(), "exception": error}))
        except ENDING_ERRORS:
            raise
        except BaseException as e:
            call.logger.exception(f"{call.prepared.label} cannot compute its backoff: {e}")
            return None
        return max(0.0, delay)

    def _set_condition(self, call: ReconcilerCall, status: bool, reason: str, message: str) -> None:
        if call.handler.condition is not None:
            call.conditions.set(call.handler.condition, status, reason=reason, message=message)

    def _observe(self, call: ReconcilerCall) -> None:
        if not call.handler.observe:
            return
        generation = call.body.metadata.get("generation")
        if generation is not None:
            call.patch.status["observedGeneration"] = generation

    def _answer(
        self, call: ReconcilerCall, result: str, delay: float | None = None, conditions: Any = None
    ) -> None:
        if call.is_answered:
            return
        patch = call.patch
        if patch or conditions is not None:
            call.host_task.reply(result, delay, patch, bool(patch.fns), conditions)
        else:
            call.host_task.reply(result, delay)
        call.is_answered = True
        call.task = None
        self._complete(call.host_task)
        if self._tracker is not None:
            self._tracker.reply_sent(call.host_task.run)

    def _stop_reconciler(self, host_task: bridge.StopReconciler) -> None:
        call = self._calls.get(host_task.run)
        if call is None or call.is_answered:
            return
        call.stopper.set(DaemonStoppingReason(host_task.reasons))
        if host_task.cancel is not None:
            call.cancellation = host_task.cancel
            if host_task.cancel == "timeout" and not call.prepared.is_async:
                # The call ends with its thread, which may never end.
                text = f"{call.prepared.label} failed temporarily: {self._timeout_error(call)}"
                rest = " Its thread cannot be stopped: the object is reconciled again after its end."
                call.logger.error(FrameworkMessage(text + rest))
            if call.task is not None:
                call.task.cancel()

    def _end_call(self, host_task: bridge.ReconcilerEnded) -> None:
        call = self._calls.pop(host_task.run, None)
        if call is not None:
            call.stopper.set(DaemonStoppingReason.DONE)
            call.close()
        if self._tracker is not None:
            self._tracker.work_finished(host_task.run)
            self._tracker.daemon_waiting(host_task.run)


def _reason_of(error: BaseException) -> str:
    word = "".join(char for char in type(error).__name__ if char.isascii() and char.isalnum())
    return word if word[:1].isupper() else "Error"
