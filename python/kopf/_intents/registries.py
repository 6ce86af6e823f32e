"""Registries of handlers, with handler ids and deduplication.

An operator has six lists of handlers, each in the order of declaration.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from types import FunctionType, MethodType
from typing import Any, Generic, TypeVar, cast

from kopf._intents import matching
from kopf._intents.causes import Cause, ChangingCause
from kopf._intents.handlers import (
    ActivityHandler,
    ChangingHandler,
    Handler,
    IndexingHandler,
    ReconcilingHandler,
    ResourceHandler,
    SpawningHandler,
    WatchingHandler,
    WebhookHandler,
)
from kopf._objects.reasons import Activity, Reason
from kopf._objects.resources import Resource
from kopf._objects.typedefs import HandlerId

logger = logging.getLogger("kopf._core.intents.registries")

HandlerT = TypeVar("HandlerT", bound=Handler)
ResourceHandlerT = TypeVar("ResourceHandlerT", bound=ResourceHandler)


class GenericRegistry(Generic[HandlerT]):
    """A list of handlers of one family."""

    def __init__(self) -> None:
        super().__init__()
        self._handlers: list[HandlerT] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self._handlers)} handlers>"

    def append(self, handler: HandlerT, /) -> None:
        """Add one more handler to the end of the list."""
        self._handlers.append(handler)

    def get_all_handlers(self) -> Collection[HandlerT]:
        """All handlers, in the order of declaration."""
        return list(self._handlers)


class ActivityRegistry(GenericRegistry[ActivityHandler]):
    """The handlers of what concerns the operator as a whole."""

    def get_handlers(self, activity: Activity) -> Sequence[ActivityHandler]:
        """The handlers of the activity; the fallback ones only if there are no others."""
        handlers = [handler for handler in self._handlers if handler.activity in (None, activity)]
        regular = [handler for handler in handlers if not handler._fallback]
        return list(deduplicated(regular or handlers))


class ResourceRegistry(GenericRegistry[ResourceHandlerT]):
    """The handlers of objects."""


class IndexingRegistry(ResourceRegistry[IndexingHandler]):
    """The handlers that fill indices."""


class WatchingRegistry(ResourceRegistry[WatchingHandler]):
    """The handlers of raw watch events."""


class SpawningRegistry(ResourceRegistry[SpawningHandler]):
    """Daemons and timers."""


class ReconcilingRegistry(ResourceRegistry[ReconcilingHandler]):
    """Reconcilers."""


class WebhooksRegistry(ResourceRegistry[WebhookHandler]):
    """The handlers of admission requests."""


class ChangingRegistry(ResourceRegistry[ChangingHandler]):
    """The handlers of changes; of a call, its sub-handlers."""

    def get_resource_handlers(self, resource: Resource) -> Sequence[ChangingHandler]:
        """The handlers of this resource, regardless of other filters."""
        return list(deduplicated(h for h in self._handlers if _selects(h, resource)))

    def get_handlers(self, cause: Cause, excluded: Container[HandlerId] = ()) -> Sequence[ChangingHandler]:
        """The handlers to be called for this cause: those that match it by all filters."""
        return list(deduplicated(self.iter_handlers(cause, excluded)))

    def iter_handlers(self, cause: Cause, excluded: Container[HandlerId] = ()) -> Iterator[ChangingHandler]:
        """The same as `get_handlers`, with repetitions of the same function."""
        assert isinstance(cause, ChangingCause)
        for handler in self._handlers:
            if handler.id in excluded:
                continue
            if handler.reason is not None and handler.reason != cause.reason:
                continue
            if handler.initial and not cause.initial:
                continue  # resuming is over, or has never begun
            if handler.initial and cause.reason == Reason.DELETE and not handler.deleted:
                continue  # resuming is not for the objects that are going away
            if _selects(handler, cause.resource) and matching.match(handler, cause):
                yield handler


# Sub-handlers have no selectors: they are for any resource.
def _selects(handler: ChangingHandler, resource: Resource) -> bool:
    return handler.selector is None or handler.selector.check(resource)


class OperatorRegistry:
    """All handlers of an operator; initially none, not even those for logging in to the cluster."""

    def __init__(self) -> None:
        super().__init__()
        self._activities = ActivityRegistry()
        self._indexing = IndexingRegistry()
        self._watching = WatchingRegistry()
        self._spawning = SpawningRegistry()
        self._changing = ChangingRegistry()
        self._webhooks = WebhooksRegistry()
        self._reconciling = ReconcilingRegistry()
        self._caches: dict[str, tuple[Any, Any]] = {}  # declarations and their objects, by their ids
        self._operators: set[object] = set()  # that are running, and have read the handlers

    def __repr__(self) -> str:
        counts = ", ".join(f"{name}={len(item._handlers)}" for name, item in self._families().items())
        return f"<{type(self).__name__}: {counts}>"

    def _families(self) -> dict[str, GenericRegistry[Any]]:
        return {
            "activities": self._activities,
            "indexing": self._indexing,
            "watching": self._watching,
            "reconciling": self._reconciling,
            "spawning": self._spawning,
            "changing": self._changing,
            "webhooks": self._webhooks,
        }

    @property
    def has_handlers(self) -> bool:
        """Whether anything is declared, besides the logins that are there from the beginning."""
        declared = (item for family in self._families().values() for item in family.get_all_handlers())
        return bool(self._caches) or any(not getattr(handler, "_fallback", False) for handler in declared)


@contextlib.contextmanager
def serving(registry: OperatorRegistry) -> Iterator[None]:
    """In the block, an operator is running with the handlers that it has read from the registry."""
    operator = object()
    registry._operators.add(operator)
    try:
        yield
    finally:
        registry._operators.discard(operator)


def add_handler(registry: OperatorRegistry, handler: Handler) -> None:
    """Add the handler to its family in the registry.

    It logs a warning if a running operator does not call the handler. Activities are read when they begin.
    """
    if registry._operators and not isinstance(handler, ActivityHandler):
        logger.warning(
            f"{handler} is declared after the start of the operator, which does not call it. Declare it when"
            " its file is loaded, or in a startup handler."
        )
    match handler:
        case ActivityHandler():
            registry._activities.append(handler)
        case IndexingHandler():
            registry._indexing.append(handler)
        case WatchingHandler():
            registry._watching.append(handler)
        case SpawningHandler():
            registry._spawning.append(handler)
        case ChangingHandler():
            registry._changing.append(handler)
        case WebhookHandler():
            registry._webhooks.append(handler)
        case ReconcilingHandler():
            registry._reconciling.append(handler)
        case _:
            raise TypeError(f"Handlers of type {type(handler).__name__} have no family.")


def activity_handlers(registry: OperatorRegistry) -> ActivityRegistry:
    """The handlers of what concerns the operator as a whole."""
    return registry._activities


def index_ids(registry: OperatorRegistry) -> list[HandlerId]:
    """The names of the indices."""
    return [handler.id for handler in registry._indexing.get_all_handlers()]


def cache_declarations(registry: OperatorRegistry) -> list[Any]:
    """The declarations of the caches."""
    return [declaration for declaration, _ in registry._caches.values()]


def cache_arguments(registry: OperatorRegistry) -> dict[str, Any]:
    """The caches, by their ids."""
    return {id: cache for id, (_, cache) in registry._caches.items()}


def resource_handlers(registry: OperatorRegistry) -> Sequence[ResourceHandler]:
    """All handlers of the engine; their positions are their numbers."""
    groups: list[Collection[ResourceHandler]] = [
        registry._indexing.get_all_handlers(),
        registry._watching.get_all_handlers(),
        registry._spawning.get_all_handlers(),
        registry._changing.get_all_handlers(),
        registry._webhooks.get_all_handlers(),
        registry._reconciling.get_all_handlers(),
    ]
    return [handler for group in groups for handler in group]


def deduplicated(handlers: Iterable[HandlerT]) -> Iterator[HandlerT]:
    """Keep the first of the handlers with the same function and the same id."""
    seen: set[tuple[int, str]] = set()
    for handler in handlers:
        key = (id(handler.fn), handler.id)
        if key not in seen:
            seen.add(key)
            yield handler


def get_callable_id(c: Callable[..., Any]) -> str:
    """Derive the id from a function; raise `ValueError` for other callables: they need an explicit id."""
    if isinstance(c, functools.partial):
        return get_callable_id(c.func)
    if hasattr(c, "__wrapped__"):
        return get_callable_id(c.__wrapped__)
    if isinstance(c, (FunctionType, MethodType)):
        if c.__name__ == "<lambda>":
            return f"lambda:{c.__code__.co_filename}:{c.__code__.co_firstlineno}"
        return str(getattr(c, "__qualname__", c.__name__))
    raise ValueError(f"Cannot get id of {c!r}.")


def generate_id(
    fn: Callable[..., Any],
    id: str | None,
    prefix: str | None = None,
    suffix: str | None = None,
) -> HandlerId:
    """Make the full id of a handler: the given or derived one, in its parent, with its field."""
    own = id if id is not None else get_callable_id(fn)
    parts = [prefix, own, suffix]
    return cast(HandlerId, "/".join(part for part in parts if part))
