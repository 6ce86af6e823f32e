"""A finding of `kopf doctor`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Finding:
    """The result of a check, or a part of it."""

    check: str
    level: Literal["ok", "info", "warn", "fail"]
    text: str
    detail: str = ""
    """What solves the problem, such as a rule for a role; empty if there is nothing to copy."""

    def to_json(self) -> dict[str, Any]:
        """The finding in the output of `-o json`."""
        return {**asdict(self), "detail": self.detail or None}
