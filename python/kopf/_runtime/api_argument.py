"""The arguments `api` and `conditions`: functions that require them get them; and the provider of clients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol

API = "api"
CONDITIONS = "conditions"


class ApiProvider(Protocol):
    """Makes the argument for the handlers of one operator."""

    async def provide(self, kwargs: Mapping[str, Any], *, is_async: bool) -> Any:
        """Make the argument for a handler with these other arguments."""


def named_arguments(fn: Callable[..., Any]) -> frozenset[str]:
    """The arguments that the signature of the function names; those of `**kwargs` are not named."""
    return frozenset(it.name for it in _named_parameters(fn))


def required_arguments(fn: Callable[..., Any]) -> frozenset[str]:
    """The named arguments without a default value.

    A default, also of a partial, is a value of the author, and None often stands for a client that the
    function makes by itself.
    """
    return frozenset(it.name for it in _named_parameters(fn) if it.default is it.empty)


def _named_parameters(fn: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        parameters = inspect.signature(fn, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError):
        return []
    return [it for it in parameters if it.kind in (it.POSITIONAL_OR_KEYWORD, it.KEYWORD_ONLY)]
