"""The namespaces of caches and of watched kinds.

The module is imported only by operators with caches or reconcilers.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

Namespaces = Literal["*"] | tuple[str, ...] | None
"""All namespaces, these, or those of the operator."""


def parse_namespaces(namespaces: Any) -> Namespaces:
    """Check the option `namespaces`; wrong values raise `TypeError` or `ValueError`."""
    if namespaces is None or namespaces == "*":
        return "*" if namespaces == "*" else None
    if isinstance(namespaces, str) or not isinstance(namespaces, Collection):
        raise TypeError(f"namespaces= must be '*' or a list of names. Got {namespaces!r}.")
    names = tuple(dict.fromkeys(namespaces))
    if not names or not all(isinstance(name, str) and name and "*" not in name for name in names):
        raise ValueError(f"namespaces= must be '*' or a list of names without patterns. Got {namespaces!r}.")
    return names


def serialize_namespaces(namespaces: Namespaces) -> Any:
    """The namespaces for the engine."""
    if namespaces is None:
        return "served"
    return "all" if namespaces == "*" else {"named": list(namespaces)}
