"""Snapshot of the objects of a cluster in a file, for the next run.

Restored objects have new uids. The owner references are changed accordingly, and owners are restored first.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from kopf._testing.client import ApiError
from kopf._testing.cluster import Cluster
from kopf._testing.discovery import CRDS, NAMESPACES, Object, ResourceMapping
from kopf._testing.private_files import write_private

# Created by the server itself.
_BUILTIN_NAMESPACES = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})
_VOLATILE = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink")
_TRANSIENT = frozenset({"events", "leases"})


def save(cluster: Cluster, path: pathlib.Path) -> int:
    """Write all objects to the file, in whole or not at all; how many there are.

    Only the user can read the file: payloads of Secrets are in it.
    """
    bodies = [
        body
        for mapping in cluster.resource_types()
        if _is_kept(mapping)
        for body in _collect(cluster, mapping)
    ]
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


def _is_kept(mapping: ResourceMapping) -> bool:
    return {"list", "create"} <= mapping.verbs and mapping.plural not in _TRANSIENT


def _collect(cluster: Cluster, mapping: ResourceMapping) -> list[Object]:
    return [body for body in cluster.list(mapping, "*") if not _is_builtin(mapping, body)]


def _is_builtin(mapping: ResourceMapping, body: Object) -> bool:
    meta = body["metadata"]
    if mapping == NAMESPACES or mapping.plural == "namespaces":
        return meta["name"] in _BUILTIN_NAMESPACES
    if mapping.plural in ("services", "endpoints", "endpointslices") and meta["name"] == "kubernetes":
        return True
    return meta["name"].startswith("system:") or meta.get("namespace") in _BUILTIN_NAMESPACES - {"default"}


def _in_order(bodies: Iterable[Object]) -> list[Object]:
    """Sort CRDs and namespaces first, and owners before their dependents."""
    ranks = {CRDS.kind: 0, NAMESPACES.kind: 1}
    waiting = sorted(bodies, key=lambda item: ranks.get(item["kind"], 2))
    uids_of_all = {body["metadata"]["uid"] for body in waiting}
    done: set[str] = set()
    ordered: list[Object] = []
    while waiting:
        ready = [item for item in waiting if not _owners(item) & uids_of_all - done] or waiting
        ordered += ready
        done |= {item["metadata"]["uid"] for item in ready}
        waiting = [item for item in waiting if item["metadata"]["uid"] not in done]
    return ordered


def _owners(body: Mapping[str, Any]) -> set[str]:
    return {owner["uid"] for owner in body["metadata"].get("ownerReferences") or ()}


def _restore(cluster: Cluster, body: Object, uids: dict[str, str]) -> None:
    meta = {key: value for key, value in body["metadata"].items() if key not in _VOLATILE}
    if body["kind"] == CRDS.kind:
        meta.pop("finalizers", None)  # the server's own
    deleting = meta.pop("deletionTimestamp", None)
    meta.pop("deletionGracePeriodSeconds", None)
    for owner in meta.get("ownerReferences") or ():
        owner["uid"] = uids.get(owner["uid"], owner["uid"])
    restored = {**body, "metadata": meta}
    namespace = meta.get("namespace")
    try:
        created = cluster.create(restored)
    except ApiError as error:
        # It is there already: the server has made it by itself.
        if error.code != 409:
            raise
        created = cluster.get(restored, meta["name"], namespace)
    uids[body["metadata"]["uid"]] = created["metadata"]["uid"]
    if "status" in body and created.get("status") != body["status"] and body["kind"] != CRDS.kind:
        with contextlib.suppress(ApiError):  # kinds without the subresource have it in the object
            cluster.patch(restored, meta["name"], {"status": body["status"]}, namespace, subresource="status")
    if deleting is not None:
        cluster.delete(restored, meta["name"], namespace)
