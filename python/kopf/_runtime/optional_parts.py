"""Parts of an operator that are loaded only if its handlers need them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from kopf._intents.handlers import ReconcilingHandler, ResourceHandler
from kopf._intents.registries import OperatorRegistry
from kopf._runtime.bridge import Engine
from kopf._runtime.invocation import Invoker


def accepting_triggers(
    registry: OperatorRegistry, engine: Engine, handlers: Sequence[ResourceHandler], invoker: Invoker
) -> contextlib.AbstractContextManager[None]:
    """Accept external triggers of the operator's reconcilers, if it has any, during the `with` block."""
    if not any(isinstance(handler, ReconcilingHandler) for handler in handlers):
        return contextlib.nullcontext()
    from kopf._runtime import triggers  # other operators do not load it

    return triggers.accepting(registry, engine, handlers, invoker)
