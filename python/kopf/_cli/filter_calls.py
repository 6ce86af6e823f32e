"""Calls of the functions in the declarations of an operator, as its engine would ask for them.

The causes, and so the arguments, are those of a running operator. Its memory is not there: memos are new, and
indices and caches are empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kopf._intents import matching
from kopf._intents.causes import ResourceCause
from kopf._intents.filters import MetaFilterToken
from kopf._intents.handlers import ResourceHandler
from kopf._intents.lifecycles import HandlerState, LifeCycleFn
from kopf._intents.matching import Mismatch
from kopf._intents.registries import OperatorRegistry, cache_arguments, index_ids
from kopf._intents.settings import OperatorSettings
from kopf._objects.indices import Indexers
from kopf._objects.memos import Memo
from kopf._objects.resources import Resource
from kopf._objects.typedefs import RawEventType
from kopf._runtime import bridge, custom_storages, invocation
from kopf._runtime.custom_storages import FetchedState
from kopf._runtime.cycle_context import CycleContext
from kopf._runtime.functions import locate
from kopf._runtime.memos import MemoRegistry

Result = tuple[str, str | None, str | None, bool]
"""The result of the filters of a handler, for `bridge.explain`."""


class FilterCalls:
    """The functions of the handlers of one resource; the engine identifies handlers by their positions."""

    def __init__(
        self,
        handlers: Sequence[ResourceHandler],
        *,
        registry: OperatorRegistry,
        resource: Resource,
        settings: OperatorSettings,
        lifecycle: LifeCycleFn,
        type: RawEventType,
        calls_filters: bool,
    ) -> None:
        super().__init__()
        self._handlers = handlers
        self._resource = resource
        self._settings = settings
        self._lifecycle = lifecycle
        self._type = type
        self._calls_filters = calls_filters
        self._indexers = Indexers()
        self._indexers.ensure(index_ids(registry))
        self._indexers.add_caches(cache_arguments(registry))
        self._context: CycleContext | None = None

    def filter(
        self, kind: str, object: bridge.Object, change: bridge.Change | None, handlers: Sequence[int]
    ) -> list[Result]:
        """Evaluate the filters of these handlers."""
        if not self._calls_filters:
            return [("unasked", None, None, True)] * len(handlers)
        cause = self._make_cause(kind, object, change)
        return [_evaluate(self._handlers[index], cause, has_change=kind == "change") for index in handlers]

    def select(
        self,
        object: bridge.Object,
        change: bridge.Change | None,
        handlers: Sequence[tuple[int, int]],
        states: Mapping[str, HandlerState],
    ) -> list[int]:
        """Let the lifecycle of the author select the handlers to be called."""
        cause = self._make_cause("change", object, change)
        candidates = {index: self._handlers[index] for index, _ in handlers}
        chosen = invocation.select_handlers(self._lifecycle, candidates, state=states, **cause.kwargs)
        return [index for index, _ in chosen]

    def fetch(self, object: bridge.Object, command: bridge.FetchState) -> FetchedState:
        """Fetch the state of the object from the storages of the author."""
        return custom_storages.fetch_state(command, self._cycle(object), self._settings)

    def _make_cause(self, kind: str, object: bridge.Object, change: bridge.Change | None) -> ResourceCause:
        cycle = self._cycle(object)
        if change is not None:
            return cycle.changing_cause(change)
        if kind == "event":
            return cycle.watching_cause()
        return cycle.indexing_cause() if kind == "index" else cycle.spawning_cause()

    def _cycle(self, object: bridge.Object) -> CycleContext:
        if self._context is None:
            self._context = CycleContext(
                object,
                uid=object.uid or "",
                resource=self._resource,
                type=self._type,
                memos=MemoRegistry(Memo()),
                settings=self._settings,
                indices=self._indexers.indices,
            )
        return self._context


def _evaluate(handler: ResourceHandler, cause: ResourceCause, *, has_change: bool) -> Result:
    try:
        prematch = not has_change or matching.prematch(handler, cause)
        mismatch = matching.find_mismatch(handler, cause)
    except Exception as error:
        text = f"a filter of {handler.id} raises {type(error).__name__}: {error}"
        return "raised", None, text, False
    if mismatch is None:
        return "matches", None, None, True
    return "mismatch", mismatch.filter, _describe(mismatch), prematch and has_change


def _describe(mismatch: Mismatch) -> str:
    titles = {"value": "value of", "old": "old value of", "new": "new value of"}
    title = f"{titles.get(mismatch.filter, mismatch.filter)} {mismatch.name}".strip()
    if callable(mismatch.expected):
        return f"{title}: {_name(mismatch.expected)} is false"
    required = {MetaFilterToken.PRESENT: "present", MetaFilterToken.ABSENT: "absent"}
    expected = mismatch.expected
    text = required[expected] if isinstance(expected, MetaFilterToken) else repr(expected)
    return f"{title}: must be {text}" if expected is not None else f"{title}: is unchanged"


def _name(fn: Callable[..., Any]) -> str:
    """The name of the function; for a lambda, with its place."""
    name = str(getattr(fn, "__name__", ""))
    return f"{name}()" if name.isidentifier() else locate(fn)
