"""The objects of a cluster between its runs. It owns their file; it must not know who made them.

Objects get new uids when they come back: owner references are brought in line with these, the owners come
first.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from kopf._testing.client import Refused
from kopf._testing.cluster import Cluster
from kopf._testing.discovery import DEFINITIONS, NAMESPACES, Object, Place
from kopf._testing.private_files import write_private

# What the server makes for itself.
_OWN_NAMESPACES = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})
_VOLATILE = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink")
_TRANSIENT = frozenset({"events", "leases"})


def save(cluster: Cluster, path: pathlib.Path) -> int:
    """Write all objects to the file, in whole or not at all; how many there are.

    Only the user can read the file: payloads of Secrets are in it.
    """
    bodies = [body for place in cluster.places() if _is_kept(place) for body in _collect(cluster, place)]
    unique = {body["metadata"]["uid"]: body for body in bodies}  # a kind may be served in several versions
    write_private(path, json.dumps(list(unique.values()), indent=1))
    return len(unique)


def load(cluster: Cluster, path: pathlib.Path) -> int:
    """Create the objects of the file; how many there are."""
    bodies: list[Object] = json.loads(path.read_text(encoding="utf-8"))
    uids: dict[str, str] = {}
    for body in _in_order(bodies):
        _restore(cluster, body, uids)
    return len(bodies)


def _is_kept(place: Place) -> bool:
    return {"list", "create"} <= place.verbs and place.plural not in _TRANSIENT


def _collect(cluster: Cluster, place: Place) -> list[Object]:
    return [body for body in cluster.list(place, "*") if not _is_own(place, body)]


def _is_own(place: Place, body: Object) -> bool:
    meta = body["metadata"]
    if place == NAMESPACES or place.plural == "namespaces":
        return meta["name"] in _OWN_NAMESPACES
    if place.plural in ("services", "endpoints", "endpointslices") and meta["name"] == "kubernetes":
        return True
    return meta["name"].startswith("system:") or meta.get("namespace") in _OWN_NAMESPACES - {"default"}


def _in_order(bodies: Iterable[Object]) -> list[Object]:
    """Definitions and namespaces, then the others; owners before what they own."""
    ranks = {DEFINITIONS.kind: 0, NAMESPACES.kind: 1}
    waiting = sorted(bodies, key=lambda it: ranks.get(it["kind"], 2))
    known = {body["metadata"]["uid"] for body in waiting}
    done: set[str] = set()
    ordered: list[Object] = []
    while waiting:
        ready = [it for it in waiting if not _owners(it) & known - done] or waiting
        ordered += ready
        done |= {it["metadata"]["uid"] for it in ready}
        waiting = [it for it in waiting if it["metadata"]["uid"] not in done]
    return ordered


def _owners(body: Mapping[str, Any]) -> set[str]:
    return {owner["uid"] for owner in body["metadata"].get("ownerReferences") or ()}


def _restore(cluster: Cluster, body: Object, uids: dict[str, str]) -> None:
    meta = {key: value for key, value in body["metadata"].items() if key not in _VOLATILE}
    if body["kind"] == DEFINITIONS.kind:
        meta.pop("finalizers", None)  # the server's own
    deleting = meta.pop("deletionTimestamp", None)
    meta.pop("deletionGracePeriodSeconds", None)
    for owner in meta.get("ownerReferences") or ():
        owner["uid"] = uids.get(owner["uid"], owner["uid"])
    fresh = {**body, "metadata": meta}
    namespace = meta.get("namespace")
    try:
        made = cluster.create(fresh)
    except Refused as error:
        # It is there already: the server has made it by itself.
        if error.code != 409:
            raise
        made = cluster.get(fresh, meta["name"], namespace)
    uids[body["metadata"]["uid"]] = made["metadata"]["uid"]
    if "status" in body and made.get("status") != body["status"] and body["kind"] != DEFINITIONS.kind:
        with contextlib.suppress(Refused):  # kinds without the subresource have it in the object
            cluster.patch(fresh, meta["name"], {"status": body["status"]}, namespace, subresource="status")
    if deleting is not None:
        cluster.delete(fresh, meta["name"], namespace)
