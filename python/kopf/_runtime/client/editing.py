"""Editing of an object: its difference as a JSON patch, which is repeated on conflicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kopf._objects import rules
from kopf._objects.bodies import Body
from kopf._runtime.bridge import json_copy
from kopf._runtime.client import operations
from kopf._runtime.client.operations import Kind, Operation


class Edit:
    """One call of `edit`."""

    def __init__(
        self, kind: Kind, name: str, namespace: str | None, subresource: str | None, attempts: int
    ) -> None:
        super().__init__()
        self._target = (kind, name, namespace, subresource)
        self._attempts = attempts
        self.body = Body({})

    def get(self) -> Operation[Body]:
        """Read the object."""
        return operations.get(*self._target, metadata_only=False)

    def read(self, body: Body) -> dict[str, Any]:
        """Take the object; return a copy to be changed."""
        self.body = body
        copy: dict[str, Any] = json_copy(body)
        return copy

    def patch(self, document: Mapping[str, Any]) -> Operation[Body] | None:
        """Send the difference; `None` if there is none."""
        difference = rules.json_patch(self.body, document)
        if not difference:
            return None
        kind, name, namespace, subresource = self._target
        version = self.body.metadata.get("resourceVersion")
        return operations.patch(kind, name, difference, namespace, subresource, version, strategic=False)

    def is_outdated(self, current: Body) -> bool:
        """Whether the object has changed since it was read."""
        return bool(current.metadata.get("resourceVersion") != self.body.metadata.get("resourceVersion"))

    def may_repeat(self) -> bool:
        """Count a conflict; whether there is another attempt."""
        self._attempts -= 1
        return self._attempts > 0
