"""Changes of objects, as watches of user code deliver them."""

from __future__ import annotations

from typing import Literal, NamedTuple

from kopf._objects.bodies import Body


class ChangeEvent(NamedTuple):
    """A change of an object."""

    type: Literal["ADDED", "MODIFIED", "DELETED"] | None
    """The kind of the change. Objects that exist at the start are `ADDED` by watches, and None by caches."""
    body: Body
    """The object; of a deleted one, its last known state."""
    old: Body | None
    """The previous known state."""


ChangeEvent.__module__ = "kopf"
