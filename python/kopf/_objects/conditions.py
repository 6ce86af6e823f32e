"""Status conditions of an object, as handlers see and change them."""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_STATUSES = {"True": True, "False": False}

Change = tuple[str, tuple[bool | None, str, str] | None]
"""The type; and the status, the reason and the message, or None to remove the condition."""


class Condition(NamedTuple):
    """One condition. `since` is `lastTransitionTime`, `generation` is `observedGeneration`."""

    type: str
    status: bool | None
    reason: str
    message: str
    since: datetime.datetime
    generation: int | None


class Conditions(Mapping[str, Condition]):
    """The conditions of an object by their types, with the changes made in this call.

    The changes are written after the call, onto the latest state of the object.

    Args:
        body: The object with the conditions in its status.
    """

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__()
        self._body = body
        self._changes: dict[str, tuple[bool | None, str, str] | None] = {}

    # Most calls do not use their conditions.
    @functools.cached_property
    def _listed(self) -> list[Any]:
        status = self._body.get("status")
        listed = status.get("conditions") if isinstance(status, Mapping) else None
        return list(listed) if isinstance(listed, list) else []

    @functools.cached_property
    def _generation(self) -> int | None:
        generation: int | None = (self._body.get("metadata") or {}).get("generation")
        return generation

    @functools.cached_property
    def _conditions(self) -> dict[str, Condition]:
        known = (item for item in self._listed if isinstance(item, Mapping) and "type" in item)
        return {str(item["type"]): _parse(item) for item in known}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self._conditions.values())!r})"

    def __getitem__(self, type: str) -> Condition:
        return self._conditions[type]

    def __iter__(self) -> Iterator[str]:
        return iter(self._conditions)

    def __len__(self) -> int:
        return len(self._conditions)

    def set(self, type: str, status: bool | None, *, reason: str, message: str = "") -> None:
        """Set the condition: true, false, or (None) unknown. The reason is a word in CamelCase.

        Args:
            type: The type of the condition, such as `Ready`.
            status: True, false, or None: unknown.
            reason: The reason: one word in CamelCase.
            message: The message for people.
        """
        if not re.fullmatch(r"[A-Z][A-Za-z0-9]{0,1023}", reason):
            raise ValueError(f"The reason of a condition must be a word in CamelCase. Got {reason!r}.")
        known = self._conditions.get(type)
        is_same = known is not None and known.status is status
        since = known.since if known is not None and is_same else datetime.datetime.now(datetime.UTC)
        self._conditions[type] = Condition(type, status, reason, message, since, self._generation)
        self._changes[type] = (status, reason, message)

    def drop(self, type: str) -> None:
        """Remove the condition, if it is there.

        Args:
            type: The type of the condition.
        """
        self._conditions.pop(type, None)
        self._changes[type] = None


def changes_of(conditions: Conditions) -> tuple[list[Any], list[Change], int | None] | None:
    """The listed conditions, the changes of this call, the generation of the body; None without changes."""
    if not conditions._changes:
        return None
    return conditions._listed, list(conditions._changes.items()), conditions._generation


def _parse(item: Mapping[str, Any]) -> Condition:
    try:
        since = datetime.datetime.fromisoformat(str(item.get("lastTransitionTime")))
    except ValueError:
        since = datetime.datetime.fromtimestamp(0, datetime.UTC)
    return Condition(
        type=str(item["type"]),
        status=_STATUSES.get(str(item.get("status"))),
        reason=str(item.get("reason") or ""),
        message=str(item.get("message") or ""),
        since=since,
        generation=item.get("observedGeneration"),
    )
