"""Handlers inside of handlers. It owns their declaration in the parent that is being called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kopf._intents.declarations import make_subhandler
from kopf._runtime.context import handler_var, subregistry_var


def declare(fn: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Add a sub-handler to the handler that is being called; outside of handlers, it is a `LookupError`."""
    parent = handler_var.get()
    handler = make_subhandler(fn, options, parent)
    subregistry_var.get().append(handler)


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
    """
    raise NotImplementedError("Execution of sub-handlers is not supported yet.")
