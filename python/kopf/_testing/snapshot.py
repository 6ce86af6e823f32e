"""Snapshot of the objects of a cluster in a file, for the next run.

Restored objects have new uids. The owner references are changed accordingly, and owners are restored first.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from kopf._testing.api import is_established
from kopf._testing.client import ApiError
from kopf._testing.cluster import Cluster
from kopf._testing.discovery import CRDS, NAMESPACES, Object, ResourceMapping
from kopf._testing.private_files import write_private

# Created by the server itself.
_BUILTIN_NAMESPACES = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})
_VOLATILE = (
    *("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink"),
    *("deletionTimestamp", "deletionGracePeriodSeconds"),
)
_TRANSIENT = frozenset({"events", "leases"})


class UnreadableError(Exception):
    """The file is not one of `save`."""


class Saved(NamedTuple):
    """The number of objects in a file, and why kinds are not in it."""

    total: int
    problems: list[str]


class Unrestored(NamedTuple):
    """An object that could not be restored as it was, and why."""

    body: Object
    problem: str


class Restored(NamedTuple):
    """The number of restored objects, and the others."""

    total: int
    unrestored: list[Unrestored]


def save(cluster: Cluster, path: pathlib.Path, unrestored: Iterable[Unrestored] = ()) -> Saved:
    """Write all objects to the file, in whole or not at all.

    Only the user can read the file: payloads of Secrets are in it.

    Args:
        unrestored: Objects that are kept for the next run, unless others have their names now.
    """
    bodies: list[Object] = []
    problems = []
    for mapping in _kept_types(cluster):
        try:
            bodies += _collect(cluster, mapping)
        except ApiError as error:  # such as a conversion webhook that does not respond
            problems.append(f"{mapping.plural} are not kept: {error}")
    names = {_full_name(body) for body in bodies}
    bodies += [item.body for item in unrestored if _full_name(item.body) not in names]
    write_private(path, json.dumps(bodies, indent=1))
    return Saved(len(bodies), problems)


def load(cluster: Cluster, path: pathlib.Path) -> Restored:
    """Create the objects of the file. Those that cannot be created do not prevent the others.

    Raises:
        UnreadableError: The file is not one of `save`.
        OSError: The file cannot be read.
    """
    bodies = _read(path)
    restoration = _Restoration(cluster)
    # Webhooks, which may be down, do not review the restored objects.
    restoration.restore([body for body in bodies if not _is_webhook_configuration(body)])
    restoration.restore([body for body in bodies if _is_webhook_configuration(body)])
    unrestored = list(restoration.unrestored.values())
    return Restored(len(bodies) - len(unrestored), unrestored)


def _read(path: pathlib.Path) -> list[Object]:
    try:
        bodies = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"it is not JSON: {error}") from error
    if not isinstance(bodies, list) or not all(map(_is_object, bodies)):
        raise UnreadableError("it is not a list of objects of a cluster")
    return bodies


def _is_object(body: Any) -> bool:
    meta = body.get("metadata") if isinstance(body, dict) else None
    if not isinstance(meta, dict):
        return False
    texts = (body.get("apiVersion"), body.get("kind"), meta.get("uid"), meta.get("name"))
    return all(isinstance(text, str) for text in texts)


def _kept_types(cluster: Cluster) -> Collection[ResourceMapping]:
    """One version of each kind: the stored one, as others can lack fields, or else the preferred one."""
    stored = {
        (crd["spec"]["group"], crd["spec"]["names"]["plural"], version["name"])
        for crd in cluster.list(CRDS)
        for version in crd["spec"]["versions"]
        if version["storage"]
    }
    types: dict[tuple[str, str], ResourceMapping] = {}
    for mapping in filter(_is_kept, cluster.resource_types()):
        kind = (mapping.group, mapping.plural)
        if kind not in types or (*kind, mapping.version) in stored:
            types[kind] = mapping
    return types.values()


def _full_name(body: Object) -> tuple[str, ...]:
    group = body["apiVersion"].rpartition("/")[0]
    return (group, body["kind"], body["metadata"].get("namespace", ""), body["metadata"]["name"])


def _is_webhook_configuration(body: Object) -> bool:
    return str(body["apiVersion"]).startswith("admissionregistration.k8s.io/")


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
    waiting = sorted(bodies, key=_rank)
    uids_of_all = {body["metadata"]["uid"] for body in waiting}
    done: set[str] = set()
    ordered: list[Object] = []
    while waiting:
        ready = [item for item in waiting if not _owners(item) & uids_of_all - done] or waiting
        ordered += ready
        done |= {item["metadata"]["uid"] for item in ready}
        waiting = [item for item in waiting if item["metadata"]["uid"] not in done]
    return ordered


def _rank(body: Object) -> int:
    if body["kind"] == CRDS.kind:
        return 0 if is_established(body) else 1  # the names of the others are in use
    return 2 if body["kind"] == NAMESPACES.kind else 3


def _owners(body: Mapping[str, Any]) -> set[str]:
    return {owner["uid"] for owner in body["metadata"].get("ownerReferences") or ()}


class _Restoration:
    """The objects of a file on their way into the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._uids: dict[str, str] = {}  # the new ones, by the old ones
        self.unrestored: dict[str, Unrestored] = {}
        """Objects that could not be restored as they were, by their old uids."""

    def restore(self, bodies: Collection[Object]) -> None:
        """Create the objects, and delete those that were being deleted."""
        ordered = _in_order(bodies)
        for body in ordered:
            self._attempt(self._create, body)
        # Nothing is deleted before: nothing can be created in a namespace that is being deleted.
        for body in reversed(ordered):
            if "deletionTimestamp" in body["metadata"] and body["metadata"]["uid"] not in self.unrestored:
                self._attempt(self._delete, body)

    def _attempt(self, step: Callable[[Object], None], body: Object) -> None:
        try:
            step(body)
        except (ApiError, LookupError, TimeoutError, ValueError) as error:
            self.unrestored[body["metadata"]["uid"]] = Unrestored(body, str(error))

    def _create(self, body: Object) -> None:
        owners = body["metadata"].get("ownerReferences") or ()
        missing = [owner for owner in owners if owner["uid"] in self.unrestored]
        if missing and len(missing) == len(owners):
            # The garbage collector would delete it.
            raise LookupError(f"its owner is not restored: {missing[0]['kind']} {missing[0]['name']}")
        for owner in owners:
            owner["uid"] = self._uids.get(owner["uid"], owner["uid"])
        meta = {key: value for key, value in body["metadata"].items() if key not in _VOLATILE}
        if body["kind"] == CRDS.kind:
            meta.pop("finalizers", None)  # the server's own
        restored = {**body, "metadata": meta}
        name, namespace = meta["name"], meta.get("namespace")
        try:
            created = self._cluster.create(restored)
        except ApiError as error:
            # It is there already: the server has made it by itself.
            if error.code != 409:
                raise
            created = self._cluster.get(restored, name, namespace)
        self._uids[body["metadata"]["uid"]] = created["metadata"]["uid"]
        if "status" in body and created.get("status") != body["status"] and body["kind"] != CRDS.kind:
            patch = {"status": body["status"]}
            with contextlib.suppress(ApiError):  # kinds without the subresource have it in the object
                self._cluster.patch(restored, name, patch, namespace, subresource="status")

    def _delete(self, body: Object) -> None:
        meta = body["metadata"]
        try:
            self._cluster.delete(body, meta["name"], meta.get("namespace"))
        except ApiError as error:
            if error.code != 404:  # it was deleted with another object
                raise
