"""The live operators of a peering, by its objects."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import click

from kopf._cli.cluster_session import Session
from kopf._cli.inspected_kinds import listed_scopes
from kopf._intents.selectors import is_served
from kopf._objects.apierrors import Forbidden, NotFound
from kopf._objects.bodies import Body
from kopf._objects.resources import Resource
from kopf._runtime import bridge
from kopf._runtime.loggers import full_name

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


def find_objects(
    session: Session, namespaces: Collection[str], *, warn: bool = False
) -> Iterator[tuple[Resource, Body]]:
    """The peering objects of the operator's peering. Those that cannot be read are left out.

    With `warn`, a warning names what cannot be read.
    """
    name = session.settings.peering.name
    for resource in session.resources:
        if resource.plural not in PLURALS or not resource.preferred:
            continue
        for scope in listed_scopes(resource, namespaces):
            try:
                found = list(session.api.list(resource, scope, fields={"metadata.name": name}))
            except NotFound:
                continue
            except Forbidden as error:
                if warn:
                    warn_unreadable(resource.plural, error)
                continue
            for body in found:
                namespace = body.metadata.namespace
                if not namespace or is_served(namespace, namespaces):
                    yield resource, body


def warn_unreadable(what: str, error: Exception) -> None:
    """Warn that running operators are not noticed."""
    click.echo(f"Warning: {what} cannot be read, so running operators are not noticed: {error}", err=True)


def find_live(
    session: Session, namespaces: Collection[str], now: int, *, warn: bool = False
) -> list[LivePeer]:
    """The live operators of the operator's peering. The time is in microseconds since the epoch.

    With `warn`, a warning names what cannot be read.
    """
    found = []
    for _, body in find_objects(session, namespaces, warn=warn):
        place = full_name(body.metadata.namespace, body.metadata.name)
        live = bridge.live_peers(dict(body.get("status") or {}), now)
        found += [LivePeer(place, *peer) for peer in live]
    return found
