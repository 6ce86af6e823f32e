"""References to objects by kind and name: for mapping functions and triggers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kopf._objects.resources import Resource

Kind = str | tuple[str, ...] | Resource
"""A kind: `deployments`, `deployments.apps`, `("apps", "v1", "deployments")`, or a resource."""


@dataclass(frozen=True)
class Ref:
    """A reference to an object; without a namespace, to a cluster-scoped one.

    Args:
        kind: The kind: a name such as `pods`, a tuple of the group, the version and the name, or a resource.
        name: The name of the object.
        namespace: The namespace; None for cluster-scoped objects.
        uid: The uid of the object; None: any.
    """

    kind: Kind
    name: str
    namespace: str | None = None
    uid: str | None = None


def ref(body_or_reference: Mapping[str, Any], /) -> Ref:
    """Make a reference to an object: from its body, from an object reference, or from an owner reference.

    Args:
        body_or_reference: The body, the object reference, or the owner reference.
    """
    metadata = body_or_reference.get("metadata")
    source = metadata if isinstance(metadata, Mapping) else body_or_reference
    api_version, kind, name = (
        body_or_reference.get("apiVersion"),
        body_or_reference.get("kind"),
        source.get("name"),
    )
    if not kind or not name:
        raise ValueError(f"A reference needs a kind and a name. Got {body_or_reference!r}.")
    group, _, version = str(api_version or "").rpartition("/")
    names = (group, version, str(kind)) if version else (str(kind),)
    return Ref(names, str(name), source.get("namespace"), source.get("uid"))
