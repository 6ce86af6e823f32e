"""Context variables for the functions of users.

They are visible in everything that a handler calls: in tasks, and in threads with a copy of the context.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any

from kopf._intents.causes import Cause
from kopf._intents.handlers import Handler
from kopf._intents.registries import ChangingRegistry
from kopf._intents.settings import OperatorSettings

cause_var: ContextVar[Cause] = ContextVar("cause_var")
"""The cause that is being handled."""

handler_var: ContextVar[Handler] = ContextVar("handler_var")
"""The handler that is being called."""

retry_var: ContextVar[int | None] = ContextVar("retry_var")
"""The number of earlier attempts of that call; None between the calls, where no handler is called."""

handling_var: ContextVar[Any] = ContextVar("handling_var")
"""The activation, or the log line of the engine, whose `handling` is the id of the cause with the reason."""

leadership_var: ContextVar[Any] = ContextVar("leadership_var")
"""The term in which the handler was called, or None; only with leader election."""

subregistry_var: ContextVar[ChangingRegistry] = ContextVar("subregistry_var")
"""The sub-handlers declared so far by the handler that is being called."""

subexecuted_var: ContextVar[bool] = ContextVar("subexecuted_var")
"""Whether the declared sub-handlers were already executed in this call of the handler."""

subrefs_var: ContextVar[Iterable[set[str]]] = ContextVar("subrefs_var")
"""Where all the enclosing handlers collect the ids of their sub-handlers, of any depth."""

sublifecycle_var: ContextVar[Any] = ContextVar("sublifecycle_var")
"""The lifecycle for sub-handlers, if they are executed without one."""

subsettings_var: ContextVar[OperatorSettings] = ContextVar("subsettings_var")
"""The settings of the operator for the execution of sub-handlers."""

subinvoker_var: ContextVar[Any] = ContextVar("subinvoker_var")
"""What calls the sub-handlers."""

settings_var: ContextVar[OperatorSettings] = ContextVar("settings_var")
"""The settings of the operator for posting of events."""

event_queue_var: ContextVar[Any] = ContextVar("event_queue_var")
"""Where the events to be posted go; only where an object is being handled."""

event_queue_loop_var: ContextVar[Any] = ContextVar("event_queue_loop_var")
"""The event loop to which that queue belongs."""


@contextlib.contextmanager
def context(values: Iterable[tuple[ContextVar[Any], Any]]) -> Iterator[None]:
    """Set the context variables for the duration of the block."""
    tokens = [(var, var.set(value)) for var, value in values]
    try:
        yield
    finally:
        for var, token in reversed(tokens):
            var.reset(token)
