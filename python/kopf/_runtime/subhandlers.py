"""Sub-handlers: their declaration and execution in the call of their parent.

The engine's rules (`SubHandlers`) decide which sub-handlers are due and what is persisted. This module
has what needs the context of the parent: filters, the lifecycle, the calls, and the storage of progress.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kopf._intents import lifecycles
from kopf._intents.causes import Cause, ChangingCause
from kopf._intents.decorators import make_subhandler
from kopf._intents.errors import HandlerChildrenRetry
from kopf._intents.handlers import ChangingHandler, handler_with
from kopf._intents.lifecycles import BUILTIN_LIFECYCLES, LifeCycleFn
from kopf._intents.registries import ChangingRegistry, generate_id
from kopf._objects import dicts, diffs
from kopf._objects.logging_types import Logger
from kopf._objects.typedefs import HandlerId
from kopf._runtime.bridge import Attempt, HandlerCall, Outcome, SubHandlers
from kopf._runtime.context import (
    cause_var,
    context,
    handler_var,
    retry_var,
    subexecuted_var,
    subinvoker_var,
    sublifecycle_var,
    subrefs_var,
    subregistry_var,
    subsettings_var,
)
from kopf._runtime.custom_storages import fetch_records, warn_of_record
from kopf._runtime.cycle_context import store_results
from kopf._runtime.invocation import Invoker, PreparedHandler, attempt_for, attempt_limits, select_handlers

EMPTY_SELECTION_DELAY = 1.0
"""Seconds until the next attempt if a user's lifecycle selects no handlers though some are due."""


def declare(fn: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Add a sub-handler to the handler that is being called; outside of handlers, it is a `LookupError`."""
    parent = handler_var.get()
    handler = make_subhandler(fn, options, parent)
    subregistry_var.get().append(handler)


async def call(
    invoker: Invoker,
    prepared: PreparedHandler,
    attempt: Attempt,
    cause: Cause,
    kwargs: dict[str, Any],
    logger: Logger,
    results: list[tuple[HandlerId, Any]],
) -> Outcome:
    """Call a handler which can have sub-handlers; those that it declares are executed as a part of it.

    The context variables are left as the handler had them.
    """
    subrefs: set[str] = set()
    cause_var.set(cause)
    subregistry_var.set(ChangingRegistry())
    subexecuted_var.set(False)
    subrefs_var.set((*subrefs_var.get(()), subrefs))
    made = await HandlerCall(invoker, prepared, attempt, kwargs, logger, results=results, after_call=finish)
    return made.outcome.with_subrefs(sorted(subrefs)) if subrefs else made.outcome


async def finish() -> None:
    """Execute the sub-handlers that the current handler has declared but not executed."""
    if subexecuted_var.get():
        return
    handlers = subregistry_var.get().get_all_handlers()
    if not handlers and sublifecycle_var.get() in BUILTIN_LIFECYCLES:
        return
    await execute()


async def execute(
    *,
    fns: Any = None,
    handlers: Any = None,
    registry: Any = None,
    lifecycle: Any = None,
    cause: Any = None,
) -> None:
    """Execute the sub-handlers: the given ones, or (once per call of the parent) those that it has declared.

    If some of them are to be continued later, it raises an error that the parent must let through.

    Args:
        fns: The functions: an iterable, or a mapping with their ids.
        handlers: Handlers, as a registry keeps them.
        registry: A registry with the handlers.
        lifecycle: Which of the sub-handlers are called next; by default, as for the parent.
        cause: The cause; by default, that of the parent.

    Raises:
        TypeError: Several of `fns`, `handlers` and `registry` are given.
        RuntimeError: The parent is not a change handler.
    """
    cause = cause if cause is not None else cause_var.get(None)
    if cause is None or isinstance(cause, ChangingCause):
        inherited = sublifecycle_var.get()
        cause = cause if cause is not None else cause_var.get()
        lifecycle = lifecycle if lifecycle is not None else inherited
        lifecycle = lifecycle if lifecycle is not None else lifecycles.get_default_lifecycle()
    if sum(source is not None for source in (fns, handlers, registry)) > 1:
        raise TypeError("Only one of the fns, handlers, registry can be passed. Got more.")
    chosen = registry if registry is not None else _registry_of(fns, handlers)
    if not isinstance(cause, ChangingCause):
        raise RuntimeError(
            "Sub-handlers of event-handlers are not supported and have no practical use "
            "(there are no retries or state tracking)."
        )
    if chosen is None:
        if subexecuted_var.get():
            return
        subexecuted_var.set(True)
        chosen = subregistry_var.get()
    await _execute(chosen, lifecycle, cause)


def _registry_of(fns: Any, handlers: Any) -> ChangingRegistry | None:
    if handlers is not None:
        built = list(handlers)
    elif isinstance(fns, Mapping):
        built = [_plain_subhandler(fn, id) for id, fn in fns.items()]
    elif isinstance(fns, Iterable):
        built = [_plain_subhandler(fn, None) for fn in fns]
    elif fns is not None:
        raise ValueError(f"fns must be a mapping or an iterable, got {fns.__class__}.")
    else:
        return None
    registry = ChangingRegistry()
    for handler in built:
        registry.append(handler)
    return registry


# Unlike the declared ones, these do not inherit from the parent that the field must change.
def _plain_subhandler(fn: Callable[..., Any], id: str | None) -> ChangingHandler:
    parent = handler_var.get()
    return handler_with(ChangingHandler, id=generate_id(fn, id, prefix=parent.id), fn=fn)


async def _execute(registry: ChangingRegistry, lifecycle: LifeCycleFn, cause: ChangingCause) -> None:
    settings = subsettings_var.get()
    storage = settings.persistence.progress_storage
    declared = registry.get_resource_handlers(cause.resource)
    selected: Sequence[Any] = registry.get_handlers(cause)
    records = fetch_records([handler.id for handler in declared], cause.body, settings, cause.logger)
    # Of those that are not for this change, the records are to be removed with the parent's.
    for subrefs in subrefs_var.get(()):
        subrefs.update(records, (handler.id for handler in selected))
    sub_handlers = SubHandlers(
        cause.reason.value,
        records,
        [(handler.id, *attempt_limits(handler, settings)) for handler in selected],
    )
    for id, problem in sub_handlers.malformed:
        warn_of_record(cause.logger, id, problem)
    due = sub_handlers.due()
    picked = _select(selected, due, sub_handlers, lifecycle, cause)
    results: list[tuple[HandlerId, Any]] = []
    for index, handler in picked:
        with context([(sublifecycle_var, lifecycle), *_parent_context()]):
            field_cause = _field_cause(cause, handler)
            outcome = await call(
                subinvoker_var.get(),
                PreparedHandler(handler),
                attempt_for(sub_handlers.attempt(index), handler, selected[index], settings),
                field_cause,
                field_cause.kwargs,
                cause.logger,
                results,
            )
        sub_handlers.record_outcome(outcome)
    for id, record in sub_handlers.changed():
        storage.store(key=id, record=record, body=cause.body, patch=cause.patch)
    storage.flush()
    store_results(cause.patch, results)
    if not sub_handlers.done:
        undecided = bool(due) and not picked
        raise HandlerChildrenRetry(
            delay=max(sub_handlers.delay() or 0, EMPTY_SELECTION_DELAY if undecided else 0)
        )


# The variables of the parent, to be restored after its sub-handlers, which set them for themselves.
def _parent_context() -> list[tuple[Any, Any]]:
    variables = (cause_var, handler_var, subregistry_var, subexecuted_var, subrefs_var)
    return [(retry_var, retry_var.get(None)), *((var, var.get()) for var in variables)]


def _select(
    handlers: Sequence[ChangingHandler],
    due: Sequence[tuple[int, int]],
    sub_handlers: SubHandlers,
    lifecycle: LifeCycleFn,
    cause: ChangingCause,
) -> list[tuple[int, ChangingHandler]]:
    if not due and lifecycle in BUILTIN_LIFECYCLES:
        return []
    candidates = {index: handlers[index] for index, _ in due}
    return select_handlers(lifecycle, candidates, state=sub_handlers.states(), **cause.kwargs)


# The field of a sub-handler is looked for in what its parent sees: it can be a field of the object already.
def _field_cause(cause: ChangingCause, handler: ChangingHandler) -> ChangingCause:
    if not handler.field:
        return cause
    return dataclasses.replace(
        cause,
        old=dicts.resolve(cause.old, handler.field, default=None),
        new=dicts.resolve(cause.new, handler.field, default=None),
        diff=diffs.reduce(cause.diff, handler.field),
    )
