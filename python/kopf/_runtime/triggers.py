"""External triggers of reconcilers: of the running operators of this process."""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kopf._intents.handlers import ReconcilingHandler, ResourceHandler
from kopf._intents.reconciling import parse_kind
from kopf._intents.registries import OperatorRegistry
from kopf._intents.serialization import serialize_selector
from kopf._objects.refs import Kind, Ref, ref
from kopf._runtime.bridge import Engine
from kopf._runtime.context import subinvoker_var
from kopf._runtime.default_registry import get_default_registry
from kopf._runtime.invocation import Invoker

logger = logging.getLogger("kopf.reconciling")

_running: weakref.WeakKeyDictionary[OperatorRegistry, tuple[Engine, Sequence[ResourceHandler]]] = (
    weakref.WeakKeyDictionary()
)


_registries: weakref.WeakKeyDictionary[Invoker, OperatorRegistry] = weakref.WeakKeyDictionary()
"""The registries of running operators, by what calls their handlers."""


def attach(
    registry: OperatorRegistry, engine: Engine, handlers: Sequence[ResourceHandler], invoker: Invoker
) -> None:
    """The operator of the registry is running, with these handlers."""
    _running[registry] = (engine, handlers)
    _registries[invoker] = registry


def detach(registry: OperatorRegistry, engine: Engine) -> None:
    """The operator of the registry has ended."""
    running = _running.get(registry)
    if running is not None and running[0] is engine:
        del _running[registry]


@contextlib.contextmanager
def accepting(
    registry: OperatorRegistry, engine: Engine, handlers: Sequence[ResourceHandler], invoker: Invoker
) -> Iterator[None]:
    """The operator of the registry is running during the `with` block, with these handlers."""
    attach(registry, engine, handlers, invoker)
    try:
        yield
    finally:
        detach(registry, engine)


def trigger(
    primary: Ref | Mapping[str, Any] | tuple[Kind, str, str | None],
    /,
    *,
    id: str | None = None,
    registry: OperatorRegistry | None = None,
) -> None:
    """Call the reconcilers of the object soon: all of them, or the one with this id.

    It can be called in handlers, in threads, and in other event loops of the process, and returns at once.
    Unknown objects are ignored. Without a running operator of the registry, it raises `LookupError`.
    In a handler, the registry is that of its operator by default.

    Args:
        primary: The object: a reference, a body, or a tuple of the kind, the name, and the namespace or None.
        id: The id of the reconciler; by default, all reconcilers of the object.
        registry: The registry of the operator; by default, that of the handler's operator, else the default
            one.

    Raises:
        LookupError: No operator of the registry is running.
    """
    engine, handlers = _operator_of(registry)
    if isinstance(primary, tuple):
        kind, name, namespace = primary
        requested = Ref(kind, name, namespace)
    else:
        requested = primary if isinstance(primary, Ref) else ref(primary)
    selector = serialize_selector(parse_kind(requested.kind))
    names = (requested.namespace, requested.name, requested.uid)
    numbers = [None] if id is None else _numbers_of(handlers, id)
    found = [engine.trigger(number, names, selector) for number in numbers]
    if not any(found):
        logger.debug(f"There is nothing to be reconciled for {requested}: the trigger is ignored.")


def trigger_all(id: str, *, registry: OperatorRegistry | None = None) -> None:
    """Call the reconciler with this id soon for all its objects; the same as `trigger()` otherwise.

    Args:
        id: The id of the reconciler.
        registry: The registry of the operator; by default, that of the handler's operator, else the default
            one.

    Raises:
        LookupError: No operator of the registry is running.
    """
    engine, handlers = _operator_of(registry)
    for number in _numbers_of(handlers, id):
        engine.trigger(number)


def _operator_of(registry: OperatorRegistry | None) -> tuple[Engine, Sequence[ResourceHandler]]:
    if registry is None:
        invoker = subinvoker_var.get(None)
        registry = _registries.get(invoker) if invoker is not None else None
    registry = registry if registry is not None else get_default_registry()
    running = _running.get(registry)
    if running is None:
        raise LookupError("There is no running operator with reconcilers of this registry: pass registry=...")
    return running


def _numbers_of(handlers: Sequence[ResourceHandler], id: str) -> list[int]:
    numbers = [
        number
        for number, handler in enumerate(handlers)
        if isinstance(handler, ReconcilingHandler) and handler.id == id
    ]
    if not numbers:
        raise LookupError(f"There is no reconciler with the id {id!r}.")
    return numbers
