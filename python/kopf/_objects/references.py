"""References to objects, and how to build them from bodies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, cast


class ObjectReference(TypedDict, total=False):
    """An object as it is referred to in events and in log records."""

    apiVersion: str
    kind: str
    namespace: str | None
    name: str
    uid: str


class OwnerReference(TypedDict, total=False):
    """An owner as it is listed in `metadata.ownerReferences` of a child."""

    controller: bool
    blockOwnerDeletion: bool
    apiVersion: str
    kind: str
    name: str
    uid: str


def build_object_reference(body: Mapping[str, Any]) -> ObjectReference:
    """Build a reference to the object, without the fields that are absent or empty.

    Args:
        body: The object, with any of its fields.
    """
    metadata = body.get("metadata", {})
    fields = {
        "apiVersion": body.get("apiVersion"),
        "kind": body.get("kind"),
        "name": metadata.get("name"),
        "uid": metadata.get("uid"),
        "namespace": metadata.get("namespace"),
    }
    return cast(ObjectReference, {key: value for key, value in fields.items() if value})


def build_owner_reference(
    body: Mapping[str, Any],
    *,
    controller: bool | None = True,
    block_owner_deletion: bool | None = True,
) -> OwnerReference:
    """Build a reference to the object as an owner of others, without the fields that are absent (None).

    Args:
        body: The object, with any of its fields.
        controller: The value of `controller`; None: the field is absent.
        block_owner_deletion: The value of `blockOwnerDeletion`; None: the field is absent.
    """
    metadata = body.get("metadata", {})
    fields = {
        "controller": controller,
        "blockOwnerDeletion": block_owner_deletion,
        "apiVersion": body.get("apiVersion"),
        "kind": body.get("kind"),
        "name": metadata.get("name"),
        "uid": metadata.get("uid"),
    }
    return cast(OwnerReference, {key: value for key, value in fields.items() if value is not None})
