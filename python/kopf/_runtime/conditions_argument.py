"""The argument `conditions`: of reconcilers, and of the handlers that name it.

The module is imported only by operators with such functions.
"""

from __future__ import annotations

from typing import Any

from kopf._objects.conditions import Change, Conditions, changes_of
from kopf._objects.patches import Patch
from kopf._runtime import bridge


def write_conditions(conditions: Conditions, patch: Patch) -> None:
    """Add the changes of conditions to the patch, if anything but times would differ."""
    effective = _effective_changes(conditions)
    if effective is None:
        return
    changes, generation = effective

    def change_conditions(body: Any) -> None:
        status = body.setdefault("status", {})
        present = status.get("conditions")
        conditions = present if isinstance(present, list) else []
        status["conditions"] = bridge.change_conditions(conditions, changes, generation)

    patch.fns.append(change_conditions)


def changes_for_engine(conditions: Conditions, patch: Patch) -> tuple[list[Change], int | None] | None:
    """The changes of conditions with the generation of the body; None if nothing but times would differ.

    The engine makes them without converting the object. If the patch has functions, they are added to these.
    """
    if patch.fns:
        write_conditions(conditions, patch)
        return None
    return _effective_changes(conditions)


def _effective_changes(conditions: Conditions) -> tuple[list[Change], int | None] | None:
    changed = changes_of(conditions)
    if changed is None:
        return None
    listed, changes, generation = changed
    if bridge.change_conditions(listed, changes, generation) == listed:
        return None
    return changes, generation
