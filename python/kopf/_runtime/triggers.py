"""External triggers of reconcilers: of the running operators of this process."""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kopf._intents.handlers import ReconcilingHandler, ResourceHandler
from kopf._intents.reconciling import parse_kind
from kopf._intents.registries import OperatorRegistry
from kopf._intents.selectors import serialize_selector
from kopf._objects.refs import Kind, Ref, ref
from kopf._runtime.bridge import Engine
from kopf._runtime.context import subinvoker_var
from kopf._runtime.default_registry import get_default_registry
from kopf._runtime.invocation import Invoker

logger = logging.getLogger("kopf.reconciling")


class RunningOperator(NamedTuple):
    """A running operator with reconcilers."""

    engine: Engine
    handlers: Sequence[ResourceHandler]
    invoker: Invoker


_running: weakref.WeakKeyDictionary[OperatorRegistry, list[RunningOperator]] = weakref.WeakKeyDictionary()
_registries: weakref.WeakKeyDictionary[Invoker, OperatorRegistry] = weakref.WeakKeyDictionary()
"""The registries of operators, by what calls their handlers."""


@contextlib.contextmanager
def accepting(
    registry: OperatorRegistry, engine: Engine, handlers: Sequence[ResourceHandler], invoker: Invoker
) -> Iterator[None]:
    """The operator of the registry is running during the `with` block, with these handlers."""
    operator = RunningOperator(engine, handlers, invoker)
    _running.setdefault(registry, []).append(operator)
    _registries[invoker] = registry
    try:
        yield
    finally:
        _running[registry] = [running for running in _running[registry] if running is not operator]


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

    Args:
        primary: The object: a reference, a body, or a tuple of the kind, the name, and the namespace or None.
        id: The id of the reconciler; by default, all reconcilers of the object.
        registry: The registry of the operators; by default, only the operator of the handler, or outside of
            handlers, those of the default registry.

    Raises:
        LookupError: No operator of the registry is running.
    """
    operators = _operators_of(registry)
    if isinstance(primary, tuple):
        kind, name, namespace = primary
        requested = Ref(kind, name, namespace)
    else:
        requested = primary if isinstance(primary, Ref) else ref(primary)
    selector = serialize_selector(parse_kind(requested.kind))
    names = (requested.namespace, requested.name, requested.uid)
    found = [
        operator.engine.trigger(number, names, selector)
        for operator in operators
        for number in ([None] if id is None else _numbers_of(operator.handlers, id))
    ]
    if not any(found):
        logger.debug(f"There is nothing to be reconciled for {requested}: the trigger is ignored.")


def trigger_all(id: str, *, registry: OperatorRegistry | None = None) -> None:
    """Call the reconciler with this id soon for all its objects; the same as `trigger()` otherwise.

    Args:
        id: The id of the reconciler.
        registry: The registry of the operators; by default, only the operator of the handler, or outside of
            handlers, those of the default registry.

    Raises:
        LookupError: No operator of the registry is running.
    """
    for operator in _operators_of(registry):
        for number in _numbers_of(operator.handlers, id):
            operator.engine.trigger(number)


def _operators_of(registry: OperatorRegistry | None) -> list[RunningOperator]:
    invoker = subinvoker_var.get(None) if registry is None else None
    own = _registries.get(invoker) if invoker is not None else None
    found = _running.get(registry or own or get_default_registry(), [])
    if own is not None:
        found = [operator for operator in found if operator.invoker is invoker]
    if not found:
        raise LookupError("There is no running operator with reconcilers of this registry: pass registry=...")
    return list(found)


def _numbers_of(handlers: Sequence[ResourceHandler], id: str) -> list[int]:
    numbers = [
        number
        for number, handler in enumerate(handlers)
        if isinstance(handler, ReconcilingHandler) and handler.id == id
    ]
    if not numbers:
        raise LookupError(f"There is no reconciler with the id {id!r}.")
    return numbers
