"""Execution of the steps of a work item: calls of handlers, filters that are functions, custom lifecycles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kopf._intents import matching
from kopf._intents.handlers import ResourceHandler
from kopf._intents.lifecycles import LifeCycleFn, Progress
from kopf._intents.settings import OperatorSettings
from kopf._objects.indices import Indexers
from kopf._runtime import bridge, invocation, subhandlers
from kopf._runtime.context import cause_var, subrefs_var
from kopf._runtime.handling import Handling
from kopf._runtime.invocation import Invoker, PreparedHandler, attempt_for

Change = bridge.Change | None


class StepExecutor:
    """Executes single steps; the dispatcher knows their order."""

    def __init__(
        self,
        *,
        handlers: Sequence[ResourceHandler],
        prepared_handlers: Sequence[PreparedHandler],
        settings: OperatorSettings,
        lifecycle: LifeCycleFn,
        indexers: Indexers,
        invoker: Invoker,
    ) -> None:
        super().__init__()
        self._handlers = handlers
        self._prepared_handlers = prepared_handlers
        self._settings = settings
        self._lifecycle = lifecycle
        self._indexers = indexers
        self._invoker = invoker

    # Nothing is put to the indices before all the functions are called: if a filter fails, they stay as is.
    async def call_indexers(self, step: bridge.CallIndexers, handling: Handling) -> dict[int, Any]:
        """Call the index functions; the outcomes by the positions of the calls."""
        cause = handling.indexing_cause()
        replies: dict[int, Any] = {}
        stale = {self._handlers[index].id for index in step.excluded}
        results: dict[str, Any] = {}
        for number, call in enumerate(step.calls):
            prepared = self._prepared_handlers[call.handler]
            id = prepared.handler.id
            stale.add(id)
            if call.guarded and not matching.match(self._handlers[call.handler], cause):
                replies[number] = None
                continue
            cause_var.set(cause)
            call_result = await self._invoker.invoke(
                prepared, call.attempt, cause.kwargs, cause.logger, store_result=False
            )
            replies[number] = call_result.outcome
            results[id] = call_result
        for id in stale:
            if id not in results or results[id].outcome.failed:
                self._indexers.discard_in(id, handling.uid)
            else:
                self._indexers.replace_in(id, handling.uid, results[id].result)
        return replies

    async def call_event_handler(
        self, step: bridge.CallEventHandler, handling: Handling, results: list[tuple[str, Any]]
    ) -> Any:
        """Call an event handler; the outcome, or None if its filters do not match."""
        prepared = self._prepared_handlers[step.handler]
        cause = handling.watching_cause()
        if step.guarded and not matching.match(self._handlers[step.handler], cause):
            return None
        cause_var.set(cause)
        call_result = await self._invoker.invoke(
            prepared, step.attempt, cause.kwargs, handling.local_logger, store_result=True
        )
        if call_result.result is not None:
            results.append((prepared.handler.id, call_result.result))
        return call_result.outcome

    async def call_change_handler(
        self,
        step: bridge.CallChangeHandler,
        handling: Handling,
        change: Change,
        results: list[tuple[str, Any]],
    ) -> Any:
        """Call a change handler; the outcome."""
        prepared: PreparedHandler = (
            handling.replaced_handlers.get(step.handler) or self._prepared_handlers[step.handler]
        )
        attempt = attempt_for(step.attempt, prepared.handler, self._handlers[step.handler], self._settings)
        cause = handling.cause_for(_require_change(change), prepared.handler)
        subrefs_var.set(())
        call_result = await subhandlers.call(
            self._invoker, prepared, attempt, cause, cause.kwargs, handling.logger
        )
        if call_result.result is not None:
            results.append((prepared.handler.id, call_result.result))
        return call_result.outcome

    def filter_daemons(self, step: bridge.FilterDaemons, handling: Handling) -> list[tuple[bool, bool]]:
        """Evaluate the filters of daemons and timers."""
        cause = handling.spawning_cause()
        matched = [matching.match(self._handlers[index], cause) for index in step.handlers]
        return [(matches, matches) for matches in matched]

    def filter_handlers(
        self, step: bridge.FilterHandlers, handling: Handling, change: Change
    ) -> list[tuple[bool, bool]]:
        """Evaluate the filters of change handlers: without the change, and with it."""
        cause = handling.changing_cause(_require_change(change))
        matched = []
        for index in step.handlers:
            handler = self._handlers[index]
            prematch = matching.prematch(handler, cause)
            matched.append((prematch, prematch and matching.match(handler, cause)))
        return matched

    def select_handlers(self, step: bridge.SelectHandlers, handling: Handling, change: Change) -> list[int]:
        """Let the user's lifecycle select the handlers to be called."""
        cause = handling.changing_cause(_require_change(change))
        candidates = {index: self._handlers[index] for index, _ in step.handlers}
        state = {self._handlers[index].id: Progress(retries) for index, retries in step.handlers}
        chosen = invocation.select_handlers(self._lifecycle, candidates, state=state, **cause.kwargs)
        for index, handler in chosen:
            if handler is not self._handlers[index]:
                handling.replaced_handlers[index] = PreparedHandler(handler)
        return [index for index, _ in chosen]


def _require_change(change: Change) -> bridge.Change:
    if change is None:
        raise RuntimeError("The command needs a change, but the engine has sent none.")
    return change
