"""What the engine asks for, and how it is answered. It owns the order of things within one request;
the rules of errors are those of `invocation`, and the arguments are those of `cycles`."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from kopf._intents import matching
from kopf._intents.handlers import ResourceHandler
from kopf._intents.lifecycles import LifeCycleFn, Progress
from kopf._intents.registries import ChangingRegistry
from kopf._intents.selectors import NamespacePattern, match_namespace
from kopf._intents.settings import OperatorSettings
from kopf._objects.bodies import Body
from kopf._objects.indices import Indexers
from kopf._runtime import bridge, custom_storages, subhandlers
from kopf._runtime.context import (
    cause_var,
    event_queue_loop_var,
    event_queue_var,
    settings_var,
    subexecuted_var,
    subinvoker_var,
    sublifecycle_var,
    subrefs_var,
    subregistry_var,
    subsettings_var,
)
from kopf._runtime.daemons import Daemons, Run
from kopf._runtime.eager_tasks import start_task
from kopf._runtime.handling import Cycle
from kopf._runtime.invocation import Callee, Invoker, attempt_of, choose
from kopf._runtime.loggers import LocalObjectLogger, ObjectLogger, OwnLine, full_name
from kopf._runtime.memos import Memories
from kopf._testing.idle_tracker import pulse_var

LoginFn = Callable[[], Awaitable[list[tuple[str, dict[str, Any]]] | None]]
ProbeFn = Callable[[], Awaitable[Mapping[Any, Any]]]
Change = bridge.Change | None


class Server:
    """Serves the requests of one engine, in one event loop."""

    def __init__(
        self,
        *,
        handlers: Sequence[ResourceHandler],
        settings: OperatorSettings,
        lifecycle: LifeCycleFn,
        memories: Memories,
        indices: Indexers,
        invoker: Invoker,
        login: LoginFn,
        probe: ProbeFn | None = None,
        namespaces: Sequence[NamespacePattern] = (),
    ) -> None:
        super().__init__()
        self._handlers = handlers
        self._callees = [Callee(handler) for handler in handlers]
        self._settings = settings
        self._lifecycle = lifecycle
        self._memories = memories
        self._indexers = indices
        self._indices = indices.indices
        self._invoker = invoker
        self._login = login
        self._probe = probe
        self._outer: contextvars.Context | None = None
        self.login_error: Exception | None = None
        self.finished: asyncio.Future[tuple[str, str] | None] = asyncio.get_running_loop().create_future()
        self._namespaces = namespaces
        self._cycles: dict[int, Cycle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._pulse = pulse_var.get()
        self._loop = asyncio.get_running_loop()
        self._daemons = Daemons(
            handlers=handlers,
            callees=self._callees,
            settings=settings,
            memories=memories,
            indices=indices,
            invoker=invoker,
            answered=lambda item: self.answered(item),
        )
        self.receivers: dict[type[Any], Callable[[Any], None]] = {
            **self._daemons.receivers(),
            bridge.Script: self._receive_script,
            bridge.Log: self._receive_log,
            bridge.Close: self._receive_close,
            bridge.Cancel: self._receive_cancel,
            bridge.Forget: self._receive_forget,
            bridge.Transform: self._receive_transform,
            bridge.Login: self._receive_login,
            bridge.Review: lambda review: self.review(review),
            bridge.Select: self._receive_select,
            bridge.Probe: self._receive_probe,
            bridge.Finished: self._receive_finished,
            bridge.Locate: self._receive_locate,
        }
        """Who takes which requests; they are answered now or later."""
        self.answered: Callable[[bridge.Answered], None] = lambda _: None
        """Where the prepared replies go."""
        self.review: Callable[[bridge.Review], None] = lambda _: None
        """Who serves the admission reviews."""

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
        self._outer = contextvars.copy_context()
        if events is not None:
            event_queue_var.set(events)
            event_queue_loop_var.set(self._loop)

    async def cancel(self) -> None:
        """Cancel what is still running, and wait for it."""
        for cycle in self._cycles.values():
            cycle.cancel()
        tasks = {cycle.task for cycle in self._cycles.values() if cycle.task is not None}
        for task in self._tasks:
            task.cancel()
        self._daemons.abandon()
        tasks = {task for task in tasks | self._tasks if not task.done()}
        if tasks:
            await asyncio.wait(tasks)

    def _receive_script(self, script: bridge.Script) -> None:
        if self._pulse is not None:
            self._pulse.began(script.cycle)
        number = script.cycle
        cycle = self._cycles.get(number)
        if cycle is None:
            uid = script.uid
            cycle = self._cycles[number] = Cycle(
                script.object,
                uid=uid,
                resource=script.resource,
                type=script.event,
                memories=self._memories,
                settings=self._settings,
                indices=self._indices,
                fns=self._memories.take_carried(uid),
                body=self._daemons.body(uid, script.resource),
            )
        if script.preset is not None:
            cycle.preset(script.preset)
        if cycle.cancelled:
            return  # the engine does not wait for it any longer
        name = self._title(script)
        task = start_task(self._loop, self._run(script, cycle), name=name, context=contextvars.copy_context())
        if not task.done():
            cycle.task = task
            if cycle.cancelled:
                task.cancel()

    def _title(self, script: bridge.Script) -> str:
        """What the script does, for the name of its task."""
        object = script.object
        name = full_name(object.namespace, object.name)
        for step in script.steps:
            if type(step) is bridge.Watch or type(step) is bridge.Handle:
                return f"{self._callees[step.handler].label} of {name}"
            if type(step) is bridge.Index and step.calls:
                return f"{self._callees[step.calls[0].handler].label} of {name}"
        return f"Handling of {name}"

    async def _run(self, script: bridge.Script, cycle: Cycle) -> None:
        replies: list[Any] = []
        then: list[Any] | None = None
        try:
            watched: list[tuple[str, Any]] = []
            handled: list[tuple[str, Any]] = []
            for step in script.steps:
                if type(step) is bridge.Index:
                    replies.append(await self._index(step, cycle))
                    continue
                if type(step) is bridge.Watch:
                    replies.append(await self._watch(step, cycle, watched))
                    continue
                if watched:
                    cycle.deliver(watched)
                    watched = []
                if type(step) is bridge.Handle:
                    replies.append(await self._handle(step, cycle, script.change, handled))
                elif type(step) is bridge.Spawn:
                    replies.append(self._spawn(step, cycle))
                elif type(step) is bridge.Match:
                    replies.append(self._match(step, cycle, script.change))
                elif type(step) is bridge.Pick:
                    replies.append(self._pick(step, cycle, script.change))
                elif type(step) is bridge.Recall:
                    replies.append(custom_storages.recall(step, cycle, self._settings))
                elif type(step) is bridge.Keep:
                    custom_storages.keep(step, cycle, self._settings)
                    replies.append(None)
            cycle.deliver(watched)
            if script.then and cycle.is_clean() and script.goes_on(replies):
                then = []
                for step in script.then:
                    then.append(await self._handle(step, cycle, script.change, handled))
            cycle.deliver(handled)
            self._answer(script, cycle, replies, None, then)
        except asyncio.CancelledError as e:
            # Unless it was us, the function has awaited something that is cancelled: the cycle goes on.
            if cycle.cancelled:
                raise
            self._answer_error(script, cycle, replies, e)
        except Exception as e:
            self._answer_error(script, cycle, replies, e)

    def _answer_error(
        self, script: bridge.Script, cycle: Cycle, replies: list[Any], error: BaseException
    ) -> None:
        cycle.error = error
        try:
            self._answer(script, cycle, replies, repr(error))
        except Exception:
            # It is one of the replies that cannot be sent; but the engine is to hear of the end.
            self._answer(script, cycle, [], repr(error))

    def _answer(
        self,
        script: bridge.Script,
        cycle: Cycle,
        replies: list[Any],
        error: str | None,
        then: list[Any] | None = None,
    ) -> None:
        patch = cycle.patched
        sendable = error is None and (cycle.sent or (patch is not None and len(patch) > 0))
        fns = patch is not None and bool(patch.fns)
        # Those who wait for stillness are told of the real end.
        closed = script.last and error is None and not sendable and not fns and self._pulse is None
        script.answer(replies, patch if sendable else None, fns, error, closed, then)
        cycle.sent = cycle.sent or sendable
        self.answered(script)
        if closed:
            self._cycles.pop(script.cycle).release()
        if self._pulse is not None:
            self._pulse.replied(script.cycle)

    # Nothing is put to the indices before all the functions are called: if a filter fails, they stay as is.
    async def _index(self, step: bridge.Index, cycle: Cycle) -> dict[int, Any]:
        cause = cycle.indexing()
        replies: dict[int, Any] = {}
        stale = {self._handlers[index].id for index in step.excluded}
        results: dict[str, Any] = {}
        for number, call in enumerate(step.calls):
            callee = self._callees[call.handler]
            id = callee.handler.id
            stale.add(id)
            if call.guarded and not matching.match(self._handlers[call.handler], cause):
                replies[number] = None
                continue
            cause_var.set(cause)
            attempted = await self._invoker.attempt(
                callee, call.attempt, cause.kwargs, cause.logger, stored=False
            )
            replies[number] = attempted.settled
            results[id] = attempted
        for id in stale:
            if id not in results or results[id].settled.failed:
                self._indexers.discard_in(id, cycle.uid)
            else:
                self._indexers.replace_in(id, cycle.uid, results[id].result)
        return replies

    async def _watch(self, step: bridge.Watch, cycle: Cycle, results: list[tuple[str, Any]]) -> Any:
        callee = self._callees[step.handler]
        cause = cycle.watching()
        if step.guarded and not matching.match(self._handlers[step.handler], cause):
            return None
        cause_var.set(cause)
        attempted = await self._invoker.attempt(
            callee, step.attempt, cause.kwargs, cycle.local_logger, stored=True
        )
        if attempted.result is not None:
            results.append((callee.handler.id, attempted.result))
        return attempted.settled

    async def _handle(
        self, step: bridge.Handle, cycle: Cycle, change: Change, results: list[tuple[str, Any]]
    ) -> Any:
        callee: Callee = cycle.replaced.get(step.handler) or self._callees[step.handler]
        attempt = attempt_of(step.attempt, callee.handler, self._handlers[step.handler], self._settings)
        cause = cycle.changing_of(_present(change), callee.handler)
        subrefs_var.set(())
        attempted = await subhandlers.call(self._invoker, callee, attempt, cause, cause.kwargs, cycle.logger)
        if attempted.result is not None:
            results.append((callee.handler.id, attempted.result))
        return attempted.settled

    def _spawn(self, step: bridge.Spawn, cycle: Cycle) -> list[tuple[bool, bool]]:
        cause = cycle.spawning()
        matched = [matching.match(self._handlers[index], cause) for index in step.handlers]
        return [(matches, matches) for matches in matched]

    def _match(self, step: bridge.Match, cycle: Cycle, change: Change) -> list[tuple[bool, bool]]:
        cause = cycle.changing(_present(change))
        matched = []
        for index in step.handlers:
            handler = self._handlers[index]
            prematch = matching.prematch(handler, cause)
            matched.append((prematch, prematch and matching.match(handler, cause)))
        return matched

    def _pick(self, step: bridge.Pick, cycle: Cycle, change: Change) -> list[int]:
        cause = cycle.changing(_present(change))
        offered = {index: self._handlers[index] for index, _ in step.handlers}
        state = {self._handlers[index].id: Progress(retries) for index, retries in step.handlers}
        chosen = choose(self._lifecycle, offered, state=state, **cause.kwargs)
        for index, handler in chosen:
            if handler is not self._handlers[index]:
                cycle.replaced[index] = Callee(handler)
        return [index for index, _ in chosen]

    def _receive_log(self, entry: bridge.Log) -> None:
        logger = logging.getLogger(entry.logger)
        if not logger.isEnabledFor(entry.level):
            return
        exc_info = self._error_of(entry.exception_of) if entry.exception_of is not None else None
        if entry.object is None:
            logger.log(entry.level, OwnLine(entry.text), exc_info=exc_info)
        else:
            cls = ObjectLogger if entry.posted else LocalObjectLogger
            adapter = cls(body=Body(entry.object), settings=self._settings)
            adapter.log(entry.level, OwnLine(entry.text), exc_info=exc_info)

    def _error_of(self, number: int) -> BaseException | None:
        source = self._cycles.get(number) or self._daemons.find(number)
        return source.error if source is not None else None

    def _receive_close(self, job: bridge.Close) -> None:
        if self._pulse is not None:
            self._pulse.ended(job.cycle)
        cycle = self._cycles.pop(job.cycle, None)
        if cycle is None:
            return
        if job.carry:
            self._memories.carry(cycle.uid, cycle.patch.fns)
        if cycle.task is not None and not cycle.task.done():
            self._keep(cycle.task)  # it was given up, but it is still there
        cycle.release()

    def _receive_cancel(self, job: bridge.Cancel) -> None:
        cycle = self._cycles.get(job.cycle)
        if cycle is not None:
            cycle.cancel()

    def _receive_forget(self, job: bridge.Forget) -> None:
        self._memories.forget(job.uid)
        self._indexers.discard(job.uid)

    def _receive_transform(self, job: bridge.Transform) -> None:
        cycle: Cycle | Run | None = self._cycles.get(job.cycle) or self._daemons.find(job.cycle)
        if cycle is None:
            # Nothing was asked in this cycle yet, but the previous one has left its functions.
            uid = job.object.uid or ""
            cycle = self._cycles[job.cycle] = Cycle(
                job.object,
                uid=uid,
                memories=self._memories,
                settings=self._settings,
                indices=self._indices,
                fns=self._memories.take_carried(uid),
            )
        try:
            raw = job.object.to_dict()
            for fn in cycle.patch.fns:
                fn(raw)  # type: ignore[arg-type]
            job.complete(raw)
        except Exception as e:
            cycle.error = e
            job.fail(repr(e))

    def _receive_login(self, job: bridge.Login) -> None:
        if self._pulse is not None:
            self._pulse.connected()
        self._keep_activity("credentials retriever", self._log_in(job))

    def _keep_activity(self, name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        context = self._outer.copy() if self._outer is not None else None
        self._keep(self._loop.create_task(coroutine, name=name, context=context))

    def _keep(self, task: asyncio.Task[None]) -> None:
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

    def _receive_finished(self, job: bridge.Finished) -> None:
        if not self.finished.done():
            self.finished.set_result(job.failure)

    def _receive_probe(self, job: bridge.Probe) -> None:
        self._keep_activity("health reporter", self._collect_probes(job))

    async def _collect_probes(self, job: bridge.Probe) -> None:
        try:
            results = await self._probe() if self._probe is not None else {}
            job.complete(json.dumps(results))
        except Exception as e:
            logging.getLogger("kopf._core.engines.probing").exception(f"Probing has failed: {e}")
            job.fail()

    def _receive_select(self, job: bridge.Select) -> None:
        try:
            job.complete(
                [[self._wants(index, resource) for resource in job.resources] for index in job.handlers]
            )
        except Exception as e:
            job.fail(repr(e))

    def _receive_locate(self, job: bridge.Locate) -> None:
        patterns = self._namespaces
        job.complete([any(match_namespace(name, one) for one in patterns) for name in job.names])

    def _wants(self, index: int, resource: Any) -> bool:
        selector = self._handlers[index].selector
        return selector is None or selector.check(resource)


def _present(change: Change) -> bridge.Change:
    if change is None:
        raise RuntimeError("The engine asks about a change but does not say which one.")
    return change
