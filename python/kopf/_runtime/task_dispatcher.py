"""The dispatcher of activations: executes the commands of each, and completes it."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kopf._intents.handlers import ReconcilingHandler
from kopf._intents.lifecycles import LifeCycleFn
from kopf._intents.registries import ChangingRegistry
from kopf._intents.selectors import NamespacePattern
from kopf._runtime import bridge, custom_selectors
from kopf._runtime.command_executor import CommandExecutor, Results
from kopf._runtime.context import (
    event_queue_loop_var,
    event_queue_var,
    handling_var,
    retry_var,
    settings_var,
    subexecuted_var,
    subinvoker_var,
    sublifecycle_var,
    subregistry_var,
    subsettings_var,
)
from kopf._runtime.cycle_context import CycleContext
from kopf._runtime.daemon_instances import DaemonInstance
from kopf._runtime.daemons import Daemons
from kopf._runtime.eager_tasks import start_task
from kopf._runtime.engine_failures import Failure
from kopf._runtime.environment import HandlerEnvironment
from kopf._runtime.errors import ENDING_ERRORS, repr_of
from kopf._runtime.framework_lines import log_engine_line
from kopf._runtime.loggers import FrameworkMessage
from kopf._runtime.work_tracking import work_tracker_var

if TYPE_CHECKING:
    from kopf._runtime.reconciling import ReconcilerCall, Reconcilers

LoginFn = Callable[[bool], Awaitable[list[tuple[str, dict[str, Any]]] | None]]
ProbeFn = Callable[[], Awaitable[Mapping[Any, Any]]]


class TaskDispatcher:
    """Executes the host tasks of one engine, in one event loop."""

    def __init__(
        self,
        environment: HandlerEnvironment,
        *,
        lifecycle: LifeCycleFn,
        login: LoginFn,
        probe: ProbeFn | None = None,
        namespaces: Sequence[NamespacePattern] = (),
    ) -> None:
        super().__init__()
        self._environment = environment
        self._settings = environment.settings
        self._lifecycle = lifecycle
        self._memos = environment.memos
        self._invoker = environment.invoker
        self._login = login
        self._probe = probe
        self._base_context: contextvars.Context | None = None
        self.login_error: Exception | None = None
        self.finished: asyncio.Future[Failure | None] = asyncio.get_running_loop().create_future()
        self._cycles: dict[int, CycleContext] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_abandoned = False
        """Whether `cancel` does not wait for the tasks."""
        self._tracker = work_tracker_var.get()
        self._loop = asyncio.get_running_loop()
        self._command_functions = CommandExecutor(environment, lifecycle).functions()
        self._daemons = Daemons(environment, complete=lambda item: self.complete(item))
        self._reconcilers = self._make_reconcilers()
        handlers = environment.handlers
        self.request_handlers: dict[type[Any], Callable[[Any], None]] = {
            **self._daemons.request_handlers(),
            **(self._reconcilers.request_handlers() if self._reconcilers is not None else {}),
            bridge.Activation: self._receive_activation,
            bridge.Log: self._receive_log,
            bridge.CycleClosed: self._receive_close,
            bridge.CancelCycle: self._receive_cancel,
            bridge.ObjectDeleted: self._forget_object,
            bridge.ApplyPatchFns: self._apply_patch_fns,
            bridge.Login: self._receive_login,
            bridge.MatchResources: functools.partial(custom_selectors.match_resources, handlers=handlers),
            bridge.Probe: self._receive_probe,
            bridge.EngineStopped: self._engine_stopped,
            bridge.MatchNamespaces: functools.partial(custom_selectors.match_namespaces, patterns=namespaces),
        }
        """The handlers of the engine's requests, by the types of the requests."""
        self.complete: Callable[[bridge.CompletableItem], None] = lambda _: None
        """Sends a host task with its reply to the engine."""

    def _make_reconcilers(self) -> Reconcilers | None:
        if not any(isinstance(handler, ReconcilingHandler) for handler in self._environment.handlers):
            return None
        from kopf._runtime.reconciling import Reconcilers  # other operators do not load it

        return Reconcilers(self._environment, complete=lambda item: self.complete(item))

    def _find_call(self, run: int) -> ReconcilerCall | None:
        return self._reconcilers.find(run) if self._reconcilers is not None else None

    def set_context(self, events: Any = None) -> None:
        """Set the variables that are the same for all handlers, in the current context; with a queue for
        Kubernetes events, but that is not for activities: they are not about objects.
        """
        settings_var.set(self._settings)
        subsettings_var.set(self._settings)
        sublifecycle_var.set(self._lifecycle)
        subregistry_var.set(ChangingRegistry())
        subexecuted_var.set(False)
        subinvoker_var.set(self._invoker)
        self._base_context = contextvars.copy_context()
        if events is not None:
            event_queue_var.set(events)
            event_queue_loop_var.set(self._loop)

    async def cancel(self) -> None:
        """Cancel all tasks, and wait for their end, unless they are abandoned."""
        for cycle in self._cycles.values():
            cycle.cancel()
        tasks = {cycle.task for cycle in self._cycles.values() if cycle.task is not None}
        for task in self._tasks:
            task.cancel()
        self._daemons.abandon()
        if self._reconcilers is not None:
            self._reconcilers.abandon()
        tasks = {task for task in tasks | self._tasks if not task.done()}
        if self.is_abandoned:
            self._invoker.pool.abandon(tasks)
        elif tasks:
            await asyncio.wait(tasks)

    def _receive_activation(self, activation: bridge.Activation) -> None:
        if self._tracker is not None:
            self._tracker.work_started(activation.cycle, activation.task_name)
        number = activation.cycle
        cycle = self._cycles.get(number)
        if cycle is None:
            uid = activation.uid
            deferred_fns = self._memos.pop_deferred_fns(uid, activation.resource)
            cycle = self._cycles[number] = CycleContext(
                activation.object,
                uid=uid,
                resource=activation.resource,
                type=activation.event,
                memos=self._memos,
                settings=self._settings,
                indices=self._environment.indices,
                deferred_fns=deferred_fns if activation.remaining_fns else (),
                body=self._daemons.body(uid, activation.resource),
            )
        if activation.initial_patch is not None:
            cycle.prefill_patch(activation.initial_patch)
        if cycle.cancelled:
            return  # the engine does not wait for it
        task = start_task(
            self._loop,
            self._run_commands(activation, cycle),
            name=activation.task_name,
            context=contextvars.copy_context(),
            unbegun=functools.partial(self._finish_unbegun, activation, cycle),
        )
        if not task.done():
            cycle.task = task
            if cycle.cancelled:
                task.cancel()

    async def _run_commands(self, activation: bridge.Activation, cycle: CycleContext) -> None:
        results: list[Any] = []
        handling_var.set(activation)
        try:
            handler_results: Results = []
            command_type = None
            for command in activation.commands:
                if cycle.cancelled:
                    return  # the previous handler has suppressed it, and the engine does not wait
                if results:
                    retry_var.set(None)  # the previous command has called a handler
                    if handler_results and type(command) is not command_type:
                        # Filters see the patch with the results of all event handlers.
                        cycle.store_results(handler_results)
                        handler_results = []
                command_type = type(command)
                execute = self._command_functions[command_type]
                results.append(await execute(command, activation, cycle, handler_results))
            if handler_results:
                cycle.store_results(handler_results)
            self._complete(activation, cycle, results, None)
        except asyncio.CancelledError as e:
            # Otherwise, the function has awaited a cancelled future: the cycle continues.
            if cycle.cancelled:
                cycle.record_cancelled(activation.commands[len(results)])
                raise
            self._complete_with_error(activation, cycle, results, e)
        except GeneratorExit:
            raise  # the event loop has ended
        except ENDING_ERRORS as e:
            self._complete_with_error(activation, cycle, results, e)
            raise
        except BaseException as e:
            self._complete_with_error(activation, cycle, results, e)

    def _finish_unbegun(self, activation: bridge.Activation, cycle: CycleContext) -> None:
        if not cycle.cancelled:  # otherwise, the engine does not wait for it
            self._complete_with_error(activation, cycle, [], asyncio.CancelledError())

    def _complete_with_error(
        self, activation: bridge.Activation, cycle: CycleContext, results: list[Any], error: BaseException
    ) -> None:
        cycle.error = error
        try:
            self._complete(activation, cycle, results, repr_of(error))
        except Exception:
            # One of the results cannot be sent; the engine still needs the end of the cycle.
            self._complete(activation, cycle, [], repr_of(error))

    def _complete(
        self,
        activation: bridge.Activation,
        cycle: CycleContext,
        results: list[Any],
        error: str | None,
    ) -> None:
        patch = cycle.patch_or_none
        sendable = error is None and (cycle.patch_sent or (patch is not None and len(patch) > 0))
        fns = patch is not None and bool(patch.fns)
        # A work tracker needs the real end of the cycle.
        closed = activation.is_final and error is None and not sendable and not fns and self._tracker is None
        activation.reply(results, patch if sendable else None, fns, error, closed)
        cycle.patch_sent = cycle.patch_sent or sendable
        self.complete(activation)
        if closed:
            self._cycles.pop(activation.cycle).close()
        else:
            # Filters are followed by the calls of the handlers that match.
            cycle.suspend(keep_change=type(activation.commands[-1]) is bridge.FilterHandlers)
        if self._tracker is not None:
            self._tracker.reply_sent(activation.cycle)

    def _receive_log(self, entry: bridge.Log) -> None:
        logger = logging.getLogger(entry.logger)
        if not logger.isEnabledFor(entry.level):
            return
        exc_info = self._find_exception(entry.exception_of) if entry.exception_of is not None else None
        if entry.object is None:
            logger.log(entry.level, FrameworkMessage(entry.text), exc_info=exc_info)
        else:
            log_engine_line(entry, entry.object, exc_info, self._settings)

    def _find_exception(self, number: int) -> BaseException | None:
        source = self._cycles.get(number) or self._daemons.find(number) or self._find_call(number)
        return source.error if source is not None else None

    def _receive_close(self, host_task: bridge.CycleClosed) -> None:
        if self._tracker is not None:
            self._tracker.work_finished(host_task.cycle)
        cycle = self._cycles.pop(host_task.cycle, None)
        if cycle is None:
            return
        if host_task.keep_fns:
            self._memos.defer_fns(cycle.uid, cycle.resource, cycle.unapplied_fns)
        if cycle.task is not None and not cycle.task.done():
            self._track(cycle.task)  # it is cancelled, but has not ended yet
        cycle.close()

    def _receive_cancel(self, host_task: bridge.CancelCycle) -> None:
        cycle = self._cycles.get(host_task.cycle)
        if cycle is not None:
            cycle.cancel(host_task.complete)
        else:
            host_task.complete()

    def _forget_object(self, host_task: bridge.ObjectDeleted) -> None:
        self._memos.discard(host_task.uid)
        self._environment.indexers.discard(host_task.uid)

    def _apply_patch_fns(self, host_task: bridge.ApplyPatchFns) -> None:
        cycle: CycleContext | DaemonInstance | ReconcilerCall | None = (
            self._cycles.get(host_task.cycle)
            or self._daemons.find(host_task.cycle)
            or self._find_call(host_task.cycle)
        )
        if cycle is None:
            # There was no activation in this cycle, but the previous one has left its patch functions.
            uid = host_task.object.uid or ""
            resource, deferred_fns = self._memos.pop_any_deferred_fns(uid)
            cycle = self._cycles[host_task.cycle] = CycleContext(
                host_task.object,
                uid=uid,
                resource=resource,
                memos=self._memos,
                settings=self._settings,
                indices=self._environment.indices,
                deferred_fns=deferred_fns,
            )
        try:
            raw = host_task.object.to_dict()
            for fn in cycle.patch.fns:
                fn(raw)  # type: ignore[arg-type]
            host_task.complete(raw)
        except ENDING_ERRORS:
            raise
        except BaseException as e:
            cycle.error = e
            host_task.fail(repr_of(e))

    def _receive_login(self, host_task: bridge.Login) -> None:
        if self._tracker is not None:
            self._tracker.engine_connected()
        self._spawn_activity("credentials retriever", self._log_in(host_task))

    def _spawn_activity(self, name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        context = self._base_context.copy() if self._base_context is not None else None
        self._track(self._loop.create_task(coroutine, name=name, context=context))

    def _track(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _log_in(self, host_task: bridge.Login) -> None:
        try:
            host_task.complete(await self._login(host_task.is_renewal))
        except Exception as e:
            logger = logging.getLogger("kopf._core.reactor.running")
            logger.exception(f"Credentials retriever has failed: {e}")
            self.login_error = e
            host_task.fail(str(e) or repr(e))

    def _engine_stopped(self, host_task: bridge.EngineStopped) -> None:
        if not self.finished.done():
            self.finished.set_result(host_task.failure)

    def _receive_probe(self, host_task: bridge.Probe) -> None:
        self._spawn_activity("health reporter", self._collect_probes(host_task))

    async def _collect_probes(self, host_task: bridge.Probe) -> None:
        try:
            results = await self._probe() if self._probe is not None else {}
            host_task.complete(json.dumps(results))
        except Exception as e:
            logging.getLogger("kopf._core.engines.probing").exception(f"Probing has failed: {e}")
            host_task.fail()
