"""Evaluation of the filters of sub-handlers, and of handlers with filters that are functions.

The engine evaluates the same rules for all other handlers. It selects handlers by resources and subresources.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from kopf._intents.causes import Cause, ChangingCause, ResourceCause
from kopf._intents.filters import MetaFilters, MetaFilterToken
from kopf._intents.handlers import ChangingHandler, ResourceHandler
from kopf._objects import dicts


class Mismatch(NamedTuple):
    """A filter that does not match."""

    filter: Literal["label", "annotation", "field", "value", "old", "new", "when"]
    name: str
    """The label, the annotation, or the field; empty for `when`."""
    expected: Any
    """The value of the filter; a function for those that are functions."""


def prematch(handler: ResourceHandler, cause: ResourceCause) -> bool:
    """Whether the handler is for the object, regardless of what has changed in it."""
    return (_find_in_object(handler, cause) or _find_in_when(handler, cause)) is None


def evaluate(handler: ResourceHandler, cause: ResourceCause) -> tuple[bool, bool]:
    """Whether the handler is for the object, and also for the change. Functions are called at most once."""
    is_for_object = prematch(handler, cause)
    return is_for_object, is_for_object and not _find_in_change(handler, cause)


def match(handler: ResourceHandler, cause: ResourceCause) -> bool:
    """Whether the handler is for the object and for the change."""
    return find_mismatch(handler, cause) is None


def find_mismatch(handler: ResourceHandler, cause: ResourceCause) -> Mismatch | None:
    """The first filter that does not match."""
    return _find_in_object(handler, cause) or _find_in_change(handler, cause) or _find_in_when(handler, cause)


def _find_in_object(handler: ResourceHandler, cause: ResourceCause) -> Mismatch | None:
    return (
        _find_in_meta("label", handler.labels, cause.body.metadata.labels, cause)
        or _find_in_meta("annotation", handler.annotations, cause.body.metadata.annotations, cause)
        or _find_in_field(handler, cause)
    )


def _find_in_meta(
    kind: Literal["label", "annotation"],
    filters: MetaFilters | None,
    values: Mapping[str, str],
    cause: Cause,
) -> Mismatch | None:
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
            return Mismatch(kind, key, expected)
    return None


def _find_in_field(handler: ResourceHandler, cause: ResourceCause) -> Mismatch | None:
    if not handler.field:
        return None
    sources = [cause.new, cause.old] if isinstance(cause, ChangingCause) else [cause.body]
    expected = MetaFilterToken.PRESENT if handler.value is None else handler.value
    passes = any(
        _passes(expected, dicts.resolve(source, handler.field, default=dicts.MISSING), cause)
        for source in sources
    )
    if passes:
        return None
    return Mismatch("field" if handler.value is None else "value", ".".join(handler.field), expected)


def _find_in_change(handler: ResourceHandler, cause: ResourceCause) -> Mismatch | None:
    if not handler.field or not isinstance(handler, ChangingHandler) or not isinstance(cause, ChangingCause):
        return None
    old = dicts.resolve(cause.old, handler.field, default=dicts.MISSING)
    new = dicts.resolve(cause.new, handler.field, default=dicts.MISSING)
    if handler.field_needs_change and old == new:
        return Mismatch("field", ".".join(handler.field), None)
    if handler.old is not None and not _passes(handler.old, old, cause):
        return Mismatch("old", ".".join(handler.field), handler.old)
    if handler.new is not None and not _passes(handler.new, new, cause):
        return Mismatch("new", ".".join(handler.field), handler.new)
    return None


def _find_in_when(handler: ResourceHandler, cause: Cause) -> Mismatch | None:
    if handler.when is None or handler.when(**cause.kwargs):
        return None
    return Mismatch("when", "", handler.when)


def _passes(expected: Any, value: Any, cause: Cause) -> bool:
    if expected is MetaFilterToken.PRESENT:
        return value is not dicts.MISSING
    if expected is MetaFilterToken.ABSENT:
        return value is dicts.MISSING
    if callable(expected):
        return bool(expected(value, **cause.kwargs))
    return bool(value == expected)
