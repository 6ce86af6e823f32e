"""The arguments `api` and `conditions`: functions get them if they name them; and the provider of clients."""

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
    """The arguments that the signature of the function names.

    Those of `**kwargs` are not named. One with a default has the value that the author has bound, such as in
    a partial, unless it is None.
    """
    try:
        parameters = inspect.signature(fn, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError):
        return frozenset()
    return frozenset(
        it.name
        for it in parameters
        if it.kind in (it.POSITIONAL_OR_KEYWORD, it.KEYWORD_ONLY)
        and (it.default is it.empty or it.default is None)
    )
