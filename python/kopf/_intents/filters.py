"""Filter values and combinations of filter functions; `matching` evaluates the filters."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar

FnT = TypeVar("FnT", bound=Callable[..., bool])


class MetaFilterToken(enum.Enum):
    """A special value for filters by labels, annotations, and field values."""

    PRESENT = enum.auto()
    ABSENT = enum.auto()


PRESENT: Final = MetaFilterToken.PRESENT
"""The label, annotation, or field is there, with any value."""

ABSENT: Final = MetaFilterToken.ABSENT
"""The label, annotation, or field is not there."""

MetaFilterFn = Callable[..., bool]
MetaFilters = Mapping[str, str | MetaFilterToken | MetaFilterFn]


def verify_filters(
    *,
    labels: MetaFilters | None,
    annotations: MetaFilters | None,
    field: Any = None,
    value: Any = None,
    old: Any = None,
    new: Any = None,
) -> None:
    """Check the declared filters of one handler; what makes no sense raises `TypeError` or `ValueError`."""
    if field is None and (value is not None or old is not None or new is not None):
        raise TypeError("Value/old/new filters are specified without a mandatory field.")
    if value is not None and (old is not None or new is not None):
        raise TypeError("Either value= or old=/new= can be defined, not both.")
    for kind, filters in (("label", labels), ("annotation", annotations)):
        if filters is not None and any(val is None for _, val in filters.items()):
            raise ValueError(f"`None` for {kind} filters is not supported; use kopf.PRESENT or kopf.ABSENT.")


def not_(fn: FnT) -> FnT:
    """A filter that passes when the other one does not.

    Args:
        fn: A filter: a callable with the keyword arguments of the handler, which returns whether it passes.
    """

    def not_fn(*args: Any, **kwargs: Any) -> bool:
        return not fn(*args, **kwargs)

    return not_fn  # type: ignore[return-value]


def all_(fns: Collection[FnT]) -> FnT:
    """A filter that passes when all of the others do; with no others, it passes.

    Args:
        fns: Filters: callables with the keyword arguments of the handler, which return whether they pass.
    """

    def all_fn(*args: Any, **kwargs: Any) -> bool:
        return all(fn(*args, **kwargs) for fn in fns)

    return all_fn  # type: ignore[return-value]


def any_(fns: Collection[FnT]) -> FnT:
    """A filter that passes when any of the others does; with no others, it does not pass.

    Args:
        fns: Filters: callables with the keyword arguments of the handler, which return whether they pass.
    """

    def any_fn(*args: Any, **kwargs: Any) -> bool:
        return any(fn(*args, **kwargs) for fn in fns)

    return any_fn  # type: ignore[return-value]


def none_(fns: Collection[FnT]) -> FnT:
    """A filter that passes when none of the others does; with no others, it passes.

    Args:
        fns: Filters: callables with the keyword arguments of the handler, which return whether they pass.
    """

    def none_fn(*args: Any, **kwargs: Any) -> bool:
        return not any(fn(*args, **kwargs) for fn in fns)

    return none_fn  # type: ignore[return-value]
