"""Checks of the declared handlers at the start of an operator.

They find mistakes that otherwise show when an object comes, or never. They log warnings and stop nothing: a
suspected mistake can be intended.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from kopf._intents.causes import ActivityCause, ChangingCause, ResourceCause, WatchingCause, WebhookCause
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
from kopf._objects.suggestions import did_you_mean
from kopf._runtime.functions import find_mistake, locate

_ATTEMPT_KWARGS = frozenset({"param", "retry", "started", "runtime"})
# Passed only to functions that name them.
_NAMED_KWARGS = frozenset({"api"})
_HANDLER_KWARGS: dict[type[Handler], frozenset[str]] = {
    ActivityHandler: frozenset(ActivityCause._arguments) | _ATTEMPT_KWARGS,
    IndexingHandler: frozenset(ResourceCause._arguments) | _ATTEMPT_KWARGS,
    WatchingHandler: frozenset(WatchingCause._arguments) | _ATTEMPT_KWARGS,
    SpawningHandler: frozenset(ResourceCause._arguments) | _ATTEMPT_KWARGS | {"stopped"},
    ReconcilingHandler: (
        frozenset(ResourceCause._arguments) | _ATTEMPT_KWARGS | {"api", "conditions", "deleting", "stopped"}
    ),
    ChangingHandler: frozenset(ChangingCause._arguments) | _ATTEMPT_KWARGS,
    WebhookHandler: frozenset(WebhookCause._arguments) | _ATTEMPT_KWARGS,
}


def check(handlers: Iterable[Handler], indices: Collection[str] = ()) -> Iterator[str]:
    """Find what is probably wrong with the handlers; each finding is a text for the log."""
    checked: set[tuple[int, type[Handler]]] = set()
    for handler in (all_handlers := list(handlers)):
        if (id(handler.fn), type(handler)) not in checked:
            checked.add((id(handler.fn), type(handler)))
            yield from _check_arguments(handler, frozenset(indices))
            mistake = find_mistake(handler.fn)
            if mistake is not None:
                yield mistake
    yield from _check_ids(all_handlers)


def _check_arguments(handler: Handler, indices: frozenset[str]) -> Iterator[str]:
    passed = next((names for kind, names in _HANDLER_KWARGS.items() if isinstance(handler, kind)), None)
    try:
        # The outermost function is what is called: it may add arguments for the wrapped one, or remove some.
        parameters = inspect.signature(handler.fn, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError):
        return
    if passed is None:
        return
    named = {
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    required = [
        parameter.name
        for parameter in parameters
        if parameter.name in named and parameter.default is parameter.empty
    ]
    named_only = _NAMED_KWARGS
    if isinstance(handler, (ChangingHandler, SpawningHandler)):
        named_only |= {"conditions"}
    if isinstance(handler, ReconcilingHandler):
        named_only |= {"children"}
    for name in required:
        if name not in passed | named_only and name not in indices:
            hint = did_you_mean(name, passed | indices)
            yield f"{locate(handler.fn)} needs the argument {name!r}, which Kopf does not pass to it{hint}"
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters) and passed - named:
        yield f"{locate(handler.fn)} must accept more arguments than it names: add **_ to them."


def _check_ids(handlers: Iterable[Handler]) -> Iterator[str]:
    first_handlers: dict[tuple[Any, ...], ResourceHandler] = {}
    for handler in handlers:
        if not isinstance(handler, (ChangingHandler, SpawningHandler)):
            continue
        reason = (handler.reason, handler.initial) if isinstance(handler, ChangingHandler) else ()
        first = first_handlers.setdefault((handler.id, *reason, repr(handler.selector)), handler)
        if first is not handler and first.fn is not handler.fn and _same_objects(handler, first):
            places = (locate(first.fn), locate(handler.fn))
            names, advice = " and ".join(places), "Rename one of the functions"
            if places[0] == places[1]:  # its file was loaded twice, such as by Python and by `kopf run`
                names, advice = f"Two handlers {places[0]}", "Load its file once"
            yield (
                f"{names} have the same id {str(handler.id)!r} for the same objects: only one of them is "
                f"called. {advice}, or set id=... in its decorator."
            )


def _same_objects(first: ResourceHandler, second: ResourceHandler) -> bool:
    names = ("selector", "labels", "annotations", "when", "field", "value", "old", "new")
    return all(getattr(first, name, None) == getattr(second, name, None) for name in names)
