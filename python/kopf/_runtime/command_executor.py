"""Execution of the commands of an activation: handlers, filters that are functions, custom lifecycles."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

from kopf._intents import matching
from kopf._intents.handlers import ResourceHandler
from kopf._intents.lifecycles import LifeCycleFn
from kopf._intents.settings import OperatorSettings
from kopf._objects.indices import Indexers
from kopf._objects.typedefs import HandlerId
from kopf._runtime import bridge, invocation, subhandlers
from kopf._runtime.context import cause_var, retry_var, subrefs_var
from kopf._runtime.cycle_context import CycleContext
from kopf._runtime.invocation import Invoker, PreparedHandler, attempt_for

Change = bridge.Change | None
Results = list[tuple[HandlerId, Any]]


class CommandExecutor:
    """Executes single commands; the dispatcher knows their order."""

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
    async def call_indexers(self, command: bridge.CallIndexers, cycle: CycleContext) -> dict[int, Any]:
        """Call the index functions; the outcomes by the positions of the calls."""
        cause = cycle.indexing_cause()
        replies: dict[int, Any] = {}
        stale = {self._handlers[index].id for index in command.excluded}
        results: dict[str, Any] = {}
        for number, call in enumerate(command.calls):
            prepared = self._prepared_handlers[call.handler]
            id = prepared.handler.id
            stale.add(id)
            retry_var.set(None)
            if call.guarded and not matching.match(self._handlers[call.handler], cause):
                replies[number] = None
                continue
            cause_var.set(cause)
            try:
                made = await self._invoker.invoke(prepared, call.attempt, cause.kwargs, cause.logger)
            except asyncio.CancelledError:
                cycle.cancelled_handler = call.handler
                raise
            replies[number] = made.outcome
            results[id] = made
        for id in stale:
            if id not in results or results[id].outcome.failed:
                self._indexers.discard_in(id, cycle.uid)
            else:
                self._indexers.replace_in(id, cycle.uid, results[id].result)
        return replies

    def call_event_handler(
        self, command: bridge.CallEventHandler, cycle: CycleContext, results: Results
    ) -> bridge.HandlerCall | None:
        """Call an event handler; None if its filters do not match."""
        prepared = self._prepared_handlers[command.handler]
        cause = cycle.watching_cause()
        if command.guarded and not matching.match(self._handlers[command.handler], cause):
            return None
        cause_var.set(cause)
        return self._invoker.invoke(prepared, command.attempt, cause.kwargs, cause.logger, results=results)

    def call_change_handler(
        self,
        command: bridge.CallChangeHandler,
        cycle: CycleContext,
        change: Change,
        results: Results,
    ) -> Awaitable[bridge.Outcome]:
        """Call a change handler."""
        prepared: PreparedHandler = (
            cycle.replaced_handlers.get(command.handler) or self._prepared_handlers[command.handler]
        )
        attempt = attempt_for(
            command.attempt, prepared.handler, self._handlers[command.handler], self._settings
        )
        cause = cycle.cause_for(_require_change(change), prepared.handler)
        subrefs_var.set(())
        return subhandlers.call(self._invoker, prepared, attempt, cause, cause.kwargs, cycle.logger, results)

    def filter_daemons(self, command: bridge.FilterDaemons, cycle: CycleContext) -> list[tuple[bool, bool]]:
        """Evaluate the filters of daemons and timers."""
        cause = cycle.spawning_cause()
        matched = [matching.match(self._handlers[index], cause) for index in command.handlers]
        return [(matches, matches) for matches in matched]

    def filter_handlers(
        self, command: bridge.FilterHandlers, cycle: CycleContext, change: Change
    ) -> list[tuple[bool, bool]]:
        """Evaluate the filters of change handlers: without the change, and with it."""
        cause = cycle.changing_cause(_require_change(change))
        return [matching.evaluate(self._handlers[index], cause) for index in command.handlers]

    def select_handlers(
        self, command: bridge.SelectHandlers, cycle: CycleContext, change: Change
    ) -> list[int]:
        """Let the user's lifecycle select the handlers to be called."""
        cause = cycle.changing_cause(_require_change(change))
        candidates = {index: self._handlers[index] for index, _ in command.handlers}
        chosen = invocation.select_handlers(self._lifecycle, candidates, state=command.states, **cause.kwargs)
        for index, handler in chosen:
            if handler is not self._handlers[index]:
                cycle.replaced_handlers[index] = PreparedHandler(handler)
        return [index for index, _ in chosen]


def _require_change(change: Change) -> bridge.Change:
    if change is None:
        raise RuntimeError("The command needs a change, but the engine has sent none.")
    return change
