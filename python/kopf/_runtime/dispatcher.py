"""Dispatcher of work items: executes the steps of each item, and completes it.

`steps` executes single steps, `invocation` calls the handlers, `handling` has their arguments.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from kopf._intents.handlers import ResourceHandler
from kopf._intents.lifecycles import LifeCycleFn
from kopf._intents.registries import ChangingRegistry
from kopf._intents.selectors import NamespacePattern, match_namespace
from kopf._intents.settings import OperatorSettings
from kopf._objects.bodies import Body
from kopf._objects.indices import Indexers
from kopf._runtime import bridge, custom_storages
from kopf._runtime.context import (
    event_queue_loop_var,
    event_queue_var,
    settings_var,
    subexecuted_var,
    subinvoker_var,
    sublifecycle_var,
    subregistry_var,
    subsettings_var,
)
from kopf._runtime.daemon_instances import DaemonInstance
from kopf._runtime.daemons import Daemons
from kopf._runtime.eager_tasks import start_task
from kopf._runtime.handling import Handling
from kopf._runtime.invocation import Invoker, PreparedHandler
from kopf._runtime.loggers import FrameworkMessage, LocalObjectLogger, ObjectLogger, full_name
from kopf._runtime.memos import MemoRegistry
from kopf._runtime.steps import StepExecutor
from kopf._runtime.work_tracking import work_tracker_var

LoginFn = Callable[[], Awaitable[list[tuple[str, dict[str, Any]]] | None]]
ProbeFn = Callable[[], Awaitable[Mapping[Any, Any]]]


class Dispatcher:
    """Executes the work items of one engine, in one event loop."""

    def __init__(
        self,
        *,
        handlers: Sequence[ResourceHandler],
        settings: OperatorSettings,
        lifecycle: LifeCycleFn,
        memos: MemoRegistry,
        indices: Indexers,
        invoker: Invoker,
        login: LoginFn,
        probe: ProbeFn | None = None,
        namespaces: Sequence[NamespacePattern] = (),
    ) -> None:
        super().__init__()
        self._handlers = handlers
        self.prepared_handlers = [PreparedHandler(handler) for handler in handlers]
        self._settings = settings
        self._lifecycle = lifecycle
        self._memos = memos
        self._indexers = indices
        self._indices = indices.indices
        self._invoker = invoker
        self._login = login
        self._probe = probe
        self._base_context: contextvars.Context | None = None
        self.login_error: Exception | None = None
        self.finished: asyncio.Future[tuple[str, str] | None] = asyncio.get_running_loop().create_future()
        self._namespaces = namespaces
        self._handlings: dict[int, Handling] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._tracker = work_tracker_var.get()
        self._loop = asyncio.get_running_loop()
        self._steps = StepExecutor(
            handlers=handlers,
            prepared_handlers=self.prepared_handlers,
            settings=settings,
            lifecycle=lifecycle,
            indexers=indices,
            invoker=invoker,
        )
        self._daemons = Daemons(
            handlers=handlers,
            prepared_handlers=self.prepared_handlers,
            settings=settings,
            memos=memos,
            indices=indices,
            invoker=invoker,
            complete=lambda item: self.complete(item),
        )
        self.request_handlers: dict[type[Any], Callable[[Any], None]] = {
            **self._daemons.request_handlers(),
            bridge.WorkItem: self._receive_work_item,
            bridge.Log: self._receive_log,
            bridge.CycleClosed: self._receive_close,
            bridge.CancelCycle: self._receive_cancel,
            bridge.ObjectDeleted: self._forget_object,
            bridge.ApplyPatchFns: self._apply_patch_fns,
            bridge.Login: self._receive_login,
            bridge.AdmissionReview: lambda review: self.review(review),
            bridge.MatchResources: self._match_resources,
            bridge.Probe: self._receive_probe,
            bridge.EngineStopped: self._engine_stopped,
            bridge.MatchNamespaces: self._match_namespaces,
        }
        """The handlers of the engine's requests, by the types of the requests."""
        self.complete: Callable[[bridge.CompletableItem], None] = lambda _: None
        """Sends a work item with its replies to the engine."""
        self.review: Callable[[bridge.AdmissionReview], None] = lambda _: None
        """Handles an admission review."""

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
        """Cancel all tasks, and wait for their end."""
        for handling in self._handlings.values():
            handling.cancel()
        tasks = {handling.task for handling in self._handlings.values() if handling.task is not None}
        for task in self._tasks:
            task.cancel()
        self._daemons.abandon()
        tasks = {task for task in tasks | self._tasks if not task.done()}
        if tasks:
            await asyncio.wait(tasks)

    def _receive_work_item(self, item: bridge.WorkItem) -> None:
        if self._tracker is not None:
            self._tracker.work_started(item.cycle)
        number = item.cycle
        handling = self._handlings.get(number)
        if handling is None:
            uid = item.uid
            handling = self._handlings[number] = Handling(
                item.object,
                uid=uid,
                resource=item.resource,
                type=item.event,
                memos=self._memos,
                settings=self._settings,
                indices=self._indices,
                deferred_fns=self._memos.pop_deferred_fns(uid),
                body=self._daemons.body(uid, item.resource),
            )
        if item.initial_patch is not None:
            handling.prefill_patch(item.initial_patch)
        if handling.cancelled:
            return  # the engine does not wait for it
        name = self._task_name(item)
        task = start_task(
            self._loop, self._run_steps(item, handling), name=name, context=contextvars.copy_context()
        )
        if not task.done():
            handling.task = task
            if handling.cancelled:
                task.cancel()

    def _task_name(self, item: bridge.WorkItem) -> str:
        """The name of the task: the first handler and the object."""
        object = item.object
        name = full_name(object.namespace, object.name)
        for step in item.steps:
            if type(step) is bridge.CallEventHandler or type(step) is bridge.CallChangeHandler:
                return f"{self.prepared_handlers[step.handler].label} of {name}"
            if type(step) is bridge.CallIndexers and step.calls:
                return f"{self.prepared_handlers[step.calls[0].handler].label} of {name}"
        return f"Handling of {name}"

    async def _run_steps(self, item: bridge.WorkItem, handling: Handling) -> None:
        replies: list[Any] = []
        try:
            event_results: list[tuple[str, Any]] = []
            change_results: list[tuple[str, Any]] = []
            for step in item.steps:
                if type(step) is bridge.CallIndexers:
                    replies.append(await self._steps.call_indexers(step, handling))
                    continue
                if type(step) is bridge.CallEventHandler:
                    replies.append(await self._steps.call_event_handler(step, handling, event_results))
                    continue
                if event_results:
                    handling.store_results(event_results)
                    event_results = []
                if type(step) is bridge.CallChangeHandler:
                    replies.append(
                        await self._steps.call_change_handler(step, handling, item.change, change_results)
                    )
                elif type(step) is bridge.FilterDaemons:
                    replies.append(self._steps.filter_daemons(step, handling))
                elif type(step) is bridge.FilterHandlers:
                    replies.append(self._steps.filter_handlers(step, handling, item.change))
                elif type(step) is bridge.SelectHandlers:
                    replies.append(self._steps.select_handlers(step, handling, item.change))
                elif type(step) is bridge.FetchState:
                    replies.append(custom_storages.fetch_state(step, handling, self._settings))
                elif type(step) is bridge.StoreState:
                    custom_storages.store_state(step, handling, self._settings)
                    replies.append(None)
            handling.store_results(event_results)
            handling.store_results(change_results)
            self._complete(item, handling, replies, None)
        except asyncio.CancelledError as e:
            # Otherwise, the function has awaited a cancelled future: the handling continues.
            if handling.cancelled:
                raise
            self._complete_with_error(item, handling, replies, e)
        except Exception as e:
            self._complete_with_error(item, handling, replies, e)

    def _complete_with_error(
        self, item: bridge.WorkItem, handling: Handling, replies: list[Any], error: BaseException
    ) -> None:
        handling.error = error
        try:
            self._complete(item, handling, replies, repr(error))
        except Exception:
            # One of the replies cannot be sent; the engine still needs the end of the handling.
            self._complete(item, handling, [], repr(error))

    def _complete(
        self,
        item: bridge.WorkItem,
        handling: Handling,
        replies: list[Any],
        error: str | None,
    ) -> None:
        patch = handling.patch_or_none
        sendable = error is None and (handling.patch_sent or (patch is not None and len(patch) > 0))
        fns = patch is not None and bool(patch.fns)
        # A work tracker needs the real end of the handling.
        closed = item.is_final and error is None and not sendable and not fns and self._tracker is None
        item.answer(replies, patch if sendable else None, fns, error, closed)
        handling.patch_sent = handling.patch_sent or sendable
        self.complete(item)
        if closed:
            self._handlings.pop(item.cycle).close()
        if self._tracker is not None:
            self._tracker.reply_sent(item.cycle)

    def _receive_log(self, entry: bridge.Log) -> None:
        logger = logging.getLogger(entry.logger)
        if not logger.isEnabledFor(entry.level):
            return
        exc_info = self._find_exception(entry.exception_of) if entry.exception_of is not None else None
        if entry.object is None:
            logger.log(entry.level, FrameworkMessage(entry.text), exc_info=exc_info)
        else:
            cls = ObjectLogger if entry.posted else LocalObjectLogger
            adapter = cls(body=Body(entry.object), settings=self._settings)
            adapter.log(entry.level, FrameworkMessage(entry.text), exc_info=exc_info)

    def _find_exception(self, number: int) -> BaseException | None:
        source = self._handlings.get(number) or self._daemons.find(number)
        return source.error if source is not None else None

    def _receive_close(self, job: bridge.CycleClosed) -> None:
        if self._tracker is not None:
            self._tracker.work_finished(job.cycle)
        handling = self._handlings.pop(job.cycle, None)
        if handling is None:
            return
        if job.keep_fns:
            self._memos.defer_fns(handling.uid, handling.patch.fns)
        if handling.task is not None and not handling.task.done():
            self._track(handling.task)  # it is cancelled, but has not ended yet
        handling.close()

    def _receive_cancel(self, job: bridge.CancelCycle) -> None:
        handling = self._handlings.get(job.cycle)
        if handling is not None:
            handling.cancel()

    def _forget_object(self, job: bridge.ObjectDeleted) -> None:
        self._memos.discard(job.uid)
        self._indexers.discard(job.uid)

    def _apply_patch_fns(self, job: bridge.ApplyPatchFns) -> None:
        handling: Handling | DaemonInstance | None = self._handlings.get(job.cycle) or self._daemons.find(
            job.cycle
        )
        if handling is None:
            # There was no work item in this handling, but the previous one has left its patch functions.
            uid = job.object.uid or ""
            handling = self._handlings[job.cycle] = Handling(
                job.object,
                uid=uid,
                memos=self._memos,
                settings=self._settings,
                indices=self._indices,
                deferred_fns=self._memos.pop_deferred_fns(uid),
            )
        try:
            raw = job.object.to_dict()
            for fn in handling.patch.fns:
                fn(raw)  # type: ignore[arg-type]
            job.complete(raw)
        except Exception as e:
            handling.error = e
            job.fail(repr(e))

    def _receive_login(self, job: bridge.Login) -> None:
        if self._tracker is not None:
            self._tracker.engine_connected()
        self._spawn_activity("credentials retriever", self._log_in(job))

    def _spawn_activity(self, name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        context = self._base_context.copy() if self._base_context is not None else None
        self._track(self._loop.create_task(coroutine, name=name, context=context))

    def _track(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _log_in(self, job: bridge.Login) -> None:
        try:
            job.complete(await self._login())
        except Exception as e:
            logger = logging.getLogger("kopf._core.reactor.running")
            logger.exception(f"Credentials retriever has failed: {e}")
            self.login_error = e
            job.fail(str(e) or repr(e))

    def _engine_stopped(self, job: bridge.EngineStopped) -> None:
        if not self.finished.done():
            self.finished.set_result(job.failure)

    def _receive_probe(self, job: bridge.Probe) -> None:
        self._spawn_activity("health reporter", self._collect_probes(job))

    async def _collect_probes(self, job: bridge.Probe) -> None:
        try:
            results = await self._probe() if self._probe is not None else {}
            job.complete(json.dumps(results))
        except Exception as e:
            logging.getLogger("kopf._core.engines.probing").exception(f"Probing has failed: {e}")
            job.fail()

    def _match_resources(self, job: bridge.MatchResources) -> None:
        try:
            job.complete(
                [[self._selects(index, resource) for resource in job.resources] for index in job.handlers]
            )
        except Exception as e:
            job.fail(repr(e))

    def _match_namespaces(self, job: bridge.MatchNamespaces) -> None:
        patterns = self._namespaces
        job.complete([any(match_namespace(name, pattern) for pattern in patterns) for name in job.names])

    def _selects(self, index: int, resource: Any) -> bool:
        selector = self._handlers[index].selector
        return selector is None or selector.check(resource)
