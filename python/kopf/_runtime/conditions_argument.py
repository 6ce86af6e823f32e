"""The argument `conditions`: of reconcilers, and of the handlers that name it.

The module is imported only by operators with such functions.
"""

from __future__ import annotations

from typing import Any

from kopf._objects.conditions import Conditions, changes_of
from kopf._objects.patches import Patch
from kopf._runtime import bridge


def write_conditions(conditions: Conditions, patch: Patch) -> None:
    """Add the changes of conditions to the patch, if anything but times would differ."""
    changed = changes_of(conditions)
    if changed is None:
        return
    listed, changes, generation = changed
    if bridge.change_conditions(listed, changes, generation) == listed:
        return

    def change_conditions(body: Any) -> None:
        status = body.setdefault("status", {})
        present = status.get("conditions")
        conditions = present if isinstance(present, list) else []
        status["conditions"] = bridge.change_conditions(conditions, changes, generation)

    patch.fns.append(change_conditions)
