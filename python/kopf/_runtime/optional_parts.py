"""Parts of an operator that are loaded only if its handlers need them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from kopf._intents import serialization
from kopf._intents.handlers import ReconcilingHandler, ResourceHandler
from kopf._intents.registries import OperatorRegistry, serving
from kopf._intents.settings import OperatorSettings
from kopf._runtime.bridge import Engine
from kopf._runtime.invocation import Invoker


def serialize_declared(handler: ResourceHandler, settings: OperatorSettings) -> dict[str, Any]:
    """Serialize a handler, or a reconciler with its settings."""
    if not isinstance(handler, ReconcilingHandler):
        return serialization.serialize_handler(handler)
    from kopf._intents.reconciling_serialization import serialize_reconciler  # other operators do not load it

    return serialize_reconciler(handler, settings.reconciling)


@contextlib.contextmanager
def connect_parts(
    registry: OperatorRegistry, engine: Engine, handlers: Sequence[ResourceHandler], invoker: Invoker
) -> Iterator[None]:
    """Connect the optional parts with the engine, which is started: the calls of handlers with the leader
    election, and, during the `with` block, external triggers with the reconcilers, if the operator has any.
    In the block, the registry warns of further handlers.
    """
    election = engine.election()
    if election is not None:
        from kopf._runtime.leadership import Election  # other operators do not load it

        invoker.election = Election(election)
    with contextlib.ExitStack() as stack:
        stack.enter_context(serving(registry))
        if any(isinstance(handler, ReconcilingHandler) for handler in handlers):
            from kopf._runtime import triggers  # other operators do not load it

            stack.enter_context(triggers.accepting(registry, engine, handlers, invoker))
        yield


def serialize_startup(
    settings: OperatorSettings, iterated: serialization.Iterated, *, works: bool
) -> dict[str, Any]:
    """Describe the settings at the start of the engine. With `works`, it does more than a single command."""
    described = serialization.serialize_settings(settings, iterated)
    if not works or not serialization.names_lease(settings):
        return described
    from kopf._runtime import election  # other operators do not load it

    if election.steps_aside(settings):
        return {**described, "peering": {**described["peering"], "required": True}}
    if not serialization.has_leader_election(settings):
        return described
    return {**described, "leadership": election.serialize_election(settings)}
