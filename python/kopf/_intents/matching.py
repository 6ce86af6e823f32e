"""Evaluation of filters for sub-handlers, webhooks, and filters that are functions.

The engine evaluates the same rules for all other handlers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kopf._intents.causes import Cause, ChangingCause, ResourceCause, WebhookCause
from kopf._intents.filters import MetaFilters, MetaFilterToken
from kopf._intents.handlers import ChangingHandler, ResourceHandler, WebhookHandler
from kopf._objects import dicts
from kopf._objects.resources import Resource


def selects(handler: ResourceHandler, resource: Resource) -> bool:
    """Whether the handler is for the resource; sub-handlers have no selectors and are for any."""
    return handler.selector is None or handler.selector.check(resource)


def prematch(handler: ResourceHandler, cause: Cause) -> bool:
    """Whether the handler is for the object, regardless of what has changed in it."""
    if not isinstance(cause, ResourceCause):
        return False
    return _matches_object(handler, cause) and _matches_when(handler, cause)


def match(handler: ResourceHandler, cause: Cause) -> bool:
    """Whether the handler is for the object and for the change."""
    if not isinstance(cause, ResourceCause):
        return False
    return (
        _matches_object(handler, cause) and _matches_change(handler, cause) and _matches_when(handler, cause)
    )


def _matches_object(handler: ResourceHandler, cause: ResourceCause) -> bool:
    return (
        selects(handler, cause.resource)
        and _matches_subresource(handler, cause)
        and _matches_meta(handler.labels, cause.body.metadata.labels, cause)
        and _matches_meta(handler.annotations, cause.body.metadata.annotations, cause)
        and _matches_field(handler, cause)
    )


def _matches_subresource(handler: ResourceHandler, cause: ResourceCause) -> bool:
    if not isinstance(handler, WebhookHandler) or not isinstance(cause, WebhookCause):
        return True
    return handler.subresource == "*" or handler.subresource == cause.subresource


def _matches_meta(filters: MetaFilters | None, values: Mapping[str, str], cause: Cause) -> bool:
    for key, expected in (filters or {}).items():
        if expected is MetaFilterToken.ABSENT:
            passes = key not in values
        elif expected is MetaFilterToken.PRESENT:
            passes = key in values
        elif callable(expected):
            passes = bool(expected(values.get(key), **cause.kwargs))
        else:
            passes = key in values and values[key] == expected
        if not passes:
            return False
    return True


def _matches_field(handler: ResourceHandler, cause: ResourceCause) -> bool:
    if not handler.field:
        return True
    sources = [cause.new, cause.old] if isinstance(cause, ChangingCause) else [cause.body]
    expected = MetaFilterToken.PRESENT if handler.value is None else handler.value
    return any(
        _passes(expected, dicts.resolve(source, handler.field, default=dicts.MISSING), cause)
        for source in sources
    )


def _matches_change(handler: ResourceHandler, cause: ResourceCause) -> bool:
    if not handler.field or not isinstance(handler, ChangingHandler) or not isinstance(cause, ChangingCause):
        return True
    old = dicts.resolve(cause.old, handler.field, default=dicts.MISSING)
    new = dicts.resolve(cause.new, handler.field, default=dicts.MISSING)
    return (
        (not handler.field_needs_change or old != new)
        and (handler.old is None or _passes(handler.old, old, cause))
        and (handler.new is None or _passes(handler.new, new, cause))
    )


def _matches_when(handler: ResourceHandler, cause: Cause) -> bool:
    return handler.when is None or bool(handler.when(**cause.kwargs))


def _passes(expected: Any, value: Any, cause: Cause) -> bool:
    if expected is MetaFilterToken.PRESENT:
        return value is not dicts.MISSING
    if expected is MetaFilterToken.ABSENT:
        return value is dicts.MISSING
    if callable(expected):
        return bool(expected(value, **cause.kwargs))
    return bool(value == expected)
