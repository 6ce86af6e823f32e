"""The live operators of a peering, by its objects."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from kopf._cli.cluster_session import Session
from kopf._intents.selectors import match_namespace
from kopf._objects.apierrors import Forbidden, NotFound
from kopf._objects.bodies import Body
from kopf._objects.resources import Resource
from kopf._runtime import bridge

PLURALS = ("clusterkopfpeerings", "kopfpeerings")


class LivePeer(NamedTuple):
    """A live operator."""

    peering: str
    """The name of the peering object, with its namespace."""
    id: str
    priority: int
    seen: int
    """The time of the last keep-alive, in microseconds since the epoch."""

    def to_json(self) -> dict[str, Any]:
        """The operator in the output of `-o json`."""
        return {"peering": self.peering, "id": self.id, "priority": self.priority}


def find_objects(session: Session, namespaces: Collection[str]) -> Iterator[tuple[Resource, Body]]:
    """The peering objects of the operator's peering. Those that cannot be read are left out."""
    name = session.settings.peering.name
    for resource in session.resources:
        if resource.plural not in PLURALS or not resource.preferred:
            continue
        scope = "*" if resource.namespaced else None
        try:
            found = list(session.api.list(resource, scope, fields={"metadata.name": name}))
        except (Forbidden, NotFound):
            continue
        for body in found:
            namespace = body.metadata.namespace or ""
            if not (namespace and namespaces) or any(match_namespace(namespace, one) for one in namespaces):
                yield resource, body


def find_live(session: Session, namespaces: Collection[str], now: int) -> list[LivePeer]:
    """The live operators of the operator's peering. The time is in microseconds since the epoch."""
    found = []
    for _, body in find_objects(session, namespaces):
        place = "/".join(text for text in (body.metadata.namespace, body.metadata.name) if text)
        live = bridge.live_peers(dict(body.get("status") or {}), now)
        found += [LivePeer(place, *peer) for peer in live]
    return found
