"""What the engine asks for, and how it is answered. It owns the order of things within one request;
the rules of errors are those of `invocation`, and the arguments are those of `cycles`."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kopf._intents import matching
from kopf._intents.errors import PermanentError
from kopf._intents.handlers import ChangingHandler, Handler, ResourceHandler
from kopf._intents.lifecycles import LifeCycleFn
from kopf._intents.registries import ChangingRegistry
from kopf._intents.settings import OperatorSettings
from kopf._objects.bodies import Body
from kopf._runtime import bridge
from kopf._runtime.context import cause_var, settings_var, sublifecycle_var, subregistry_var, subsettings_var
from kopf._runtime.cycles import Cycle, Memories
from kopf._runtime.invocation import Callee, Invoker
from kopf._runtime.logs import LocalObjectLogger, ObjectLogger
from kopf._runtime.pulse import pulse_var

EAGER = sys.version_info >= (3, 12)

LoginFn = Callable[[], Awaitable[list[tuple[str, dict[str, Any]]] | None]]
Change = bridge.Change | None


@dataclass(frozen=True)
class Progress:
    """What a lifecycle sees of the state of a handler."""

    retries: int


class _Subhandlers(ChangingRegistry):
    """Refuses sub-handlers: the engine does not know how to persist them yet."""

    def append(self, handler: ChangingHandler, /) -> None:
        raise PermanentError(f"Sub-handlers are not supported yet: {handler.id!r}")


class Server:
    """Serves the requests of one engine, in one event loop."""

    def __init__(
        self,
        *,
        handlers: Sequence[ResourceHandler],
        settings: OperatorSettings,
        lifecycle: LifeCycleFn,
        memories: Memories,
        indices: Mapping[str, Any],
        invoker: Invoker,
        login: LoginFn,
    ) -> None:
        super().__init__()
        self._handlers = handlers
        self._callees = [Callee(handler) for handler in handlers]
        self._indexes = {id(handler): index for index, handler in enumerate(handlers)}
        self._settings = settings
        self._lifecycle = lifecycle
        self._memories = memories
        self._indices = indices
        self._invoker = invoker
        self._login = login
        self._subregistry = _Subhandlers()
        self._cycles: dict[int, Cycle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._pulse = pulse_var.get()
        self._loop = asyncio.get_running_loop()
        self._receivers: dict[type[Any], Callable[[Any], None]] = {
            bridge.Script: self._receive_script,
            bridge.Log: self._receive_log,
            bridge.Close: self._receive_close,
            bridge.Cancel: self._receive_cancel,
            bridge.Forget: self._receive_forget,
            bridge.Transform: self._receive_transform,
            bridge.Login: self._receive_login,
            bridge.Select: self._receive_select,
        }
        self.answered: Callable[[bridge.Script], None] = lambda _: None
        """Where the prepared replies go."""

    def set_context(self) -> None:
        """Set the variables that are the same for all handlers, in the current context."""
        settings_var.set(self._settings)
        subsettings_var.set(self._settings)
        sublifecycle_var.set(self._lifecycle)
        subregistry_var.set(self._subregistry)

    def receive(self, item: Any) -> None:
        """Take a request; it is answered now or later."""
        self._receivers[type(item)](item)

    async def cancel(self) -> None:
        """Cancel what is still running, and wait for it."""
        tasks = {cycle.task for cycle in self._cycles.values() if cycle.task is not None} | self._tasks
        tasks = {task for task in tasks if not task.done()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _receive_script(self, script: bridge.Script) -> None:
        if self._pulse is not None:
            self._pulse.began(script.cycle)
        cycle = self._cycles.get(script.cycle)
        if cycle is None:
            cycle = self._cycles[script.cycle] = Cycle(
                script.object,
                uid=script.uid,
                resource=script.resource,
                type=script.event,
                memo=self._memories.recall(script.uid),
                settings=self._settings,
                indices=self._indices,
                fns=self._memories.take_carried(script.uid),
            )
        if script.preset is not None:
            cycle.preset(script.preset)
        callees = self._callees
        for step in script.steps:
            if isinstance(step, _CALLS) and callees[step.handler].is_async:
                break
        else:
            drive(self._run(script, cycle))
            return
        # Only a task has everything that asynchronous functions may rely on.
        coroutine = self._run(script, cycle)
        if EAGER:
            cycle.task = asyncio.Task(coroutine, loop=self._loop, eager_start=True)  # type: ignore[call-arg, unused-ignore]
        else:
            cycle.task = self._loop.create_task(coroutine)

    async def _run(self, script: bridge.Script, cycle: Cycle) -> None:
        replies: list[Any] = []
        error: str | None = None
        try:
            watched: list[tuple[str, Any]] = []
            handled: list[tuple[str, Any]] = []
            for step in script.steps:
                if type(step) is bridge.Watch:
                    replies.append(await self._watch(step, cycle, watched))
                    continue
                if watched:
                    cycle.deliver(watched)
                    watched = []
                if type(step) is bridge.Handle:
                    replies.append(await self._handle(step, cycle, script.change, handled))
                elif type(step) is bridge.Match:
                    replies.append(self._match(step, cycle, script.change))
                else:
                    replies.append(self._pick(step, cycle, script.change))
            cycle.deliver(watched)
            cycle.deliver(handled)
            self._answer(script, cycle, replies, None)
        except Exception as e:
            cycle.error, error = e, repr(e)
            self._answer(script, cycle, replies, error)

    def _answer(self, script: bridge.Script, cycle: Cycle, replies: list[Any], error: str | None) -> None:
        patch = cycle.patch
        sendable = error is None and (cycle.sent or len(patch) > 0)
        script.answer(replies, patch if sendable else None, bool(patch.fns), error)
        cycle.sent = cycle.sent or sendable
        self.answered(script)

    async def _watch(self, step: bridge.Watch, cycle: Cycle, results: list[tuple[str, Any]]) -> Any:
        callee = self._callees[step.handler]
        cause, kwargs = cycle.watching()
        if step.guarded and not matching.match(self._handlers[step.handler], cause):
            return None
        cause_var.set(cause)
        attempted = await self._invoker.attempt(callee, step.attempt, kwargs, cycle.local_logger, stored=True)
        if attempted.result is not None:
            results.append((callee.handler.id, attempted.result))
        return attempted.settled

    async def _handle(
        self, step: bridge.Handle, cycle: Cycle, change: Change, results: list[tuple[str, Any]]
    ) -> Any:
        callee = self._callees[step.handler]
        cause, kwargs = cycle.changing_of(_present(change), callee.handler)
        cause_var.set(cause)
        attempted = await self._invoker.attempt(callee, step.attempt, kwargs, cycle.logger, stored=True)
        if attempted.result is not None:
            results.append((callee.handler.id, attempted.result))
        return attempted.settled

    def _match(self, step: bridge.Match, cycle: Cycle, change: Change) -> list[tuple[bool, bool]]:
        cause, _ = cycle.changing(_present(change))
        matched = []
        for index in step.handlers:
            handler = self._handlers[index]
            prematch = matching.prematch(handler, cause)
            matched.append((prematch, prematch and matching.match(handler, cause)))
        return matched

    def _pick(self, step: bridge.Pick, cycle: Cycle, change: Change) -> list[int]:
        cause, _ = cycle.changing(_present(change))
        handlers: list[Handler] = [self._handlers[index] for index, _ in step.handlers]
        state = {self._handlers[index].id: Progress(retries) for index, retries in step.handlers}
        picked = self._lifecycle(handlers, state=state, **cause.kwargs)
        return [self._indexes[id(handler)] for handler in picked]

    def _receive_log(self, entry: bridge.Log) -> None:
        logger = logging.getLogger(entry.logger)
        if not logger.isEnabledFor(entry.level):
            return
        cycle = self._cycles.get(entry.exception_of) if entry.exception_of is not None else None
        exc_info = cycle.error if cycle is not None else None
        if entry.object is None:
            logger.log(entry.level, entry.text, exc_info=exc_info)
        else:
            cls = ObjectLogger if entry.posted else LocalObjectLogger
            adapter = cls(body=Body(entry.object), settings=self._settings)
            adapter.log(entry.level, entry.text, exc_info=exc_info)

    def _receive_close(self, job: bridge.Close) -> None:
        if self._pulse is not None:
            self._pulse.ended(job.cycle)
        cycle = self._cycles.pop(job.cycle, None)
        if cycle is not None and job.carry:
            self._memories.carry(cycle.uid, cycle.patch.fns)
        if cycle is not None:
            cycle.body._release()
            cycle.patch._release()
        if cycle is not None and cycle.task is not None and not cycle.task.done():
            self._keep(cycle.task)  # it was given up, but it is still there

    def _receive_cancel(self, job: bridge.Cancel) -> None:
        cycle = self._cycles.get(job.cycle)
        if cycle is not None and cycle.task is not None:
            cycle.task.cancel()

    def _receive_forget(self, job: bridge.Forget) -> None:
        self._memories.forget(job.uid)

    def _receive_transform(self, job: bridge.Transform) -> None:
        cycle = self._cycles.get(job.cycle)
        if cycle is None:
            # Nothing was asked in this cycle yet, but the previous one has left its functions.
            uid = job.object.uid or ""
            cycle = self._cycles[job.cycle] = Cycle(
                job.object,
                uid=uid,
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
        self._keep(self._loop.create_task(self._log_in(job), name="credentials retriever"))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _log_in(self, job: bridge.Login) -> None:
        try:
            job.complete(await self._login())
        except Exception as e:
            logger = logging.getLogger("kopf._core.reactor.running")
            logger.exception(f"Credentials retriever has failed: {e}")
            job.fail(str(e) or repr(e))

    def _receive_select(self, job: bridge.Select) -> None:
        try:
            job.complete(
                [[self._wants(index, resource) for resource in job.resources] for index in job.handlers]
            )
        except Exception as e:
            job.fail(repr(e))

    def _wants(self, index: int, resource: Any) -> bool:
        selector = self._handlers[index].selector
        return selector is None or selector.check(resource)


_CALLS = (bridge.Watch, bridge.Handle)


def _present(change: Change) -> bridge.Change:
    if change is None:
        raise RuntimeError("The engine asks about a change but does not say which one.")
    return change


def drive(coroutine: Coroutine[asyncio.Future[Any], None, None]) -> None:
    """Run a coroutine which awaits only bare futures: at once, as far as it goes; then as they are ready.

    It costs less than a task. It cannot be cancelled, and there is no current task in it.
    """
    context = contextvars.copy_context()

    def advance(_: Any = None) -> None:
        try:
            future = coroutine.send(None)
        except (StopIteration, asyncio.CancelledError):
            return
        # This is how a task tells that it has got the future that was yielded to it.
        future._asyncio_future_blocking = False
        future.add_done_callback(advance, context=context)

    context.run(advance)
