"""Deprecated names of the testing kit: each use is a `DeprecationWarning` with the new name."""

from __future__ import annotations

import warnings
from typing import Any


def deprecated_alias(old: str, new: str) -> Any:
    """Create a property that stands for a renamed method or property."""

    def get(self: Any) -> Any:
        name = f"{type(self).__name__}.{old}"
        warnings.warn(f"{name} is deprecated; use {new} instead.", DeprecationWarning, stacklevel=2)
        return getattr(self, new)

    return property(get, doc=f"Deprecated: use `{new}`.")
