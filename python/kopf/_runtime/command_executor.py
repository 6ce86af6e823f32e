"""Execution of the commands of an activation: handlers, filters that are functions, custom lifecycles."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kopf._intents import matching
from kopf._intents.lifecycles import LifeCycleFn
from kopf._objects.typedefs import HandlerId
from kopf._runtime import bridge, custom_storages, invocation, subhandlers
from kopf._runtime.bridge import Activation, HandlerCall
from kopf._runtime.context import cause_var, retry_var, subrefs_var
from kopf._runtime.custom_storages import FetchedState
from kopf._runtime.cycle_context import CycleContext
from kopf._runtime.environment import HandlerEnvironment
from kopf._runtime.invocation import PreparedHandler, attempt_for

Results = list[tuple[HandlerId, Any]]
CommandFunction = Callable[[Any, Activation, CycleContext, Results], Awaitable[Any]]
"""A function that executes one command, and returns its result for the engine.

The results of handlers are added to `results`.
"""


class CommandExecutor:
    """Executes single commands; the dispatcher knows their order."""

    def __init__(self, environment: HandlerEnvironment, lifecycle: LifeCycleFn) -> None:
        super().__init__()
        self._handlers = environment.handlers
        self._prepared_handlers = environment.prepared_handlers
        self._settings = environment.settings
        self._lifecycle = lifecycle
        self._indexers = environment.indexers
        self._invoker = environment.invoker

    def functions(self) -> Mapping[type[Any], CommandFunction]:
        """The functions that execute the commands, by the types of the commands."""
        return {
            bridge.CallIndexers: self._call_indexers,
            bridge.CallEventHandler: self._call_event_handler,
            bridge.FilterDaemons: self._filter_daemons,
            bridge.FilterHandlers: self._filter_handlers,
            bridge.SelectHandlers: self._select_handlers,
            bridge.FetchState: self._fetch_state,
            bridge.StoreState: self._store_state,
            bridge.CallChangeHandler: self._call_change_handler,
        }

    # Nothing is put to the indices before all the functions are called: if a filter fails, they stay as is.
    async def _call_indexers(
        self, command: bridge.CallIndexers, activation: Activation, cycle: CycleContext, results: Results
    ) -> dict[int, Any]:
        """Call the index functions; the outcomes by the positions of the calls."""
        ids = {self._handlers[index].id for index in command.excluded}
        ids.update(self._prepared_handlers[call.handler].handler.id for call in command.calls)
        running = self._indexers.begin_indexing(cycle.uid, ids)
        try:
            replies, calls = await self._call_index_functions(command, cycle)
            for id in self._indexers.supersede_older(cycle.uid, running):
                if id not in calls or calls[id].outcome.failed:
                    self._indexers.discard_in(id, cycle.uid)
                else:
                    self._indexers.replace_in(id, cycle.uid, calls[id].result)
        finally:
            self._indexers.end_indexing(cycle.uid, running)
        return replies

    async def _call_index_functions(
        self, command: bridge.CallIndexers, cycle: CycleContext
    ) -> tuple[dict[int, Any], dict[str, HandlerCall]]:
        cause = cycle.indexing_cause()
        replies: dict[int, Any] = {}
        calls: dict[str, HandlerCall] = {}
        for number, call in enumerate(command.calls):
            prepared = self._prepared_handlers[call.handler]
            retry_var.set(None)
            if call.guarded and not matching.match(self._handlers[call.handler], cause):
                replies[number] = None
                continue
            cause_var.set(cause)
            try:
                ended = await HandlerCall(self._invoker, prepared, call.attempt, cause.kwargs, cause.logger)
            except asyncio.CancelledError:
                cycle.cancelled_handler = call.handler
                raise
            replies[number] = ended.outcome
            calls[prepared.handler.id] = ended
        return replies, calls

    async def _call_event_handler(
        self, command: bridge.CallEventHandler, activation: Activation, cycle: CycleContext, results: Results
    ) -> bridge.Outcome | None:
        """Call an event handler; None if its filters do not match."""
        cause = cycle.watching_cause()
        if command.guarded and not matching.match(self._handlers[command.handler], cause):
            return None
        cause_var.set(cause)
        prepared, attempt = self._prepared_handlers[command.handler], command.attempt
        call = HandlerCall(self._invoker, prepared, attempt, cause.kwargs, cause.logger, results=results)
        return (await call).outcome

    def _call_change_handler(
        self, command: bridge.CallChangeHandler, activation: Activation, cycle: CycleContext, results: Results
    ) -> Awaitable[bridge.Outcome]:
        """Call a change handler."""
        prepared: PreparedHandler = (
            cycle.replaced_handlers.get(command.handler) or self._prepared_handlers[command.handler]
        )
        attempt = attempt_for(
            command.attempt, prepared.handler, self._handlers[command.handler], self._settings
        )
        cause = cycle.cause_for(_change_of(activation), prepared.handler)
        subrefs_var.set(())
        return subhandlers.call(self._invoker, prepared, attempt, cause, cause.kwargs, cycle.logger, results)

    async def _filter_daemons(
        self, command: bridge.FilterDaemons, activation: Activation, cycle: CycleContext, results: Results
    ) -> list[tuple[bool, bool]]:
        """Evaluate the filters of daemons and timers."""
        cause = cycle.spawning_cause()
        matched = [matching.match(self._handlers[index], cause) for index in command.handlers]
        return [(matches, matches) for matches in matched]

    async def _filter_handlers(
        self, command: bridge.FilterHandlers, activation: Activation, cycle: CycleContext, results: Results
    ) -> list[tuple[bool, bool]]:
        """Evaluate the filters of change handlers: without the change, and with it."""
        cause = cycle.changing_cause(_change_of(activation))
        return [matching.evaluate(self._handlers[index], cause) for index in command.handlers]

    async def _select_handlers(
        self, command: bridge.SelectHandlers, activation: Activation, cycle: CycleContext, results: Results
    ) -> list[int]:
        """Let the user's lifecycle select the handlers to be called."""
        cause = cycle.changing_cause(_change_of(activation))
        candidates = {index: self._handlers[index] for index, _ in command.handlers}
        chosen = invocation.select_handlers(self._lifecycle, candidates, state=command.states, **cause.kwargs)
        for index, handler in chosen:
            if handler is not self._handlers[index]:
                cycle.replaced_handlers[index] = PreparedHandler(handler)
        return [index for index, _ in chosen]

    async def _fetch_state(
        self, command: bridge.FetchState, activation: Activation, cycle: CycleContext, results: Results
    ) -> FetchedState:
        """Fetch the state of the object from the user's storages."""
        return custom_storages.fetch_state(command, cycle, self._settings)

    async def _store_state(
        self, command: bridge.StoreState, activation: Activation, cycle: CycleContext, results: Results
    ) -> None:
        """Store the state of the object in the user's storages."""
        custom_storages.store_state(command, cycle, self._settings)


def _change_of(activation: Activation) -> bridge.Change:
    if activation.change is None:
        raise RuntimeError("The command needs a change, but the engine has sent none.")
    return activation.change
