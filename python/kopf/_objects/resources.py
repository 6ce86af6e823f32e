"""Resources as the cluster serves them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False, repr=False)
class Resource:
    """One kind of resources of one version of an API group. Its identity is group, version, and plural.

    Attributes:
        group: The API group; empty for the core API.
        version: The API version.
        plural: The plural name, such as `pods`.
        kind: The kind, such as `Pod`.
        singular: The singular name, such as `pod`.
        shortcuts: The short names, such as `po`.
        categories: The categories, such as `all`.
        subresources: The names of the subresources, such as `status`.
        namespaced: Whether its objects are in namespaces; None: not known.
        preferred: Whether it is the preferred version of the group.
        verbs: The verbs that the server supports, such as `list`.
    """

    group: str
    version: str
    plural: str
    kind: str | None = None
    singular: str | None = None
    shortcuts: frozenset[str] = frozenset()
    categories: frozenset[str] = frozenset()
    subresources: frozenset[str] = frozenset()
    namespaced: bool | None = None
    preferred: bool = True
    verbs: frozenset[str] = frozenset()

    def __hash__(self) -> int:
        return hash((self.group, self.version, self.plural))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Resource):
            return (self.group, self.version, self.plural) == (other.group, other.version, other.plural)
        return NotImplemented

    def __repr__(self) -> str:
        plural, *subresource = self.plural.split("/", 1)
        name = f"{plural}.{self.version}.{self.group}".strip(".")
        return "/".join([name, *subresource])

    # Mostly for tests and for decorators: `@kopf.on.event(*resource)`.
    def __iter__(self) -> Iterator[str]:
        return iter((self.group, self.version, self.plural))

    def get_url(
        self,
        *,
        server: str | None = None,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str | None = None,
        params: Mapping[str, str] | None = None,
    ) -> str:
        """Build the URL of the resource, of one object, or of a subresource; without a server, the path only.

        Raises `ValueError` if a subresource has no name, if a namespace is given for a cluster-scoped
        resource, or if one object of a namespaced resource has no namespace.

        Args:
            server: The URL of the API server; None: the path only.
            namespace: The namespace; None: all namespaces.
            name: The name of one object; None: all objects.
            subresource: The subresource of the object.
            params: The parameters of the query.
        """
        if subresource is not None and name is None:
            raise ValueError("Subresources can be used only with specific resources by their name.")
        if not self.namespaced and namespace is not None:
            raise ValueError("Specific namespaces are not supported for cluster-scoped resources.")
        if self.namespaced and namespace is None and name is not None:
            raise ValueError("Specific namespaces are required for specific namespaced resources.")

        core = self.group == "" and self.version == "v1"
        parts = [
            "/api" if core else "/apis",
            self.group,
            self.version,
            "namespaces" if self.namespaced and namespace is not None else "",
            namespace if self.namespaced and namespace is not None else "",
            self.plural,
            name or "",
            subresource or "",
        ]
        path = "/".join(part for part in parts if part)
        import urllib.parse

        query = urllib.parse.urlencode(params, encoding="utf-8") if params else ""
        url = f"{path}?{query}" if query else path
        return url if server is None else server.rstrip("/") + "/" + url.lstrip("/")


def serialize_resource(resource: Resource) -> dict[str, Any]:
    """Describe a resource to the core."""
    return {**vars(resource), "namespaced": bool(resource.namespaced)}


def make_resource(fields: dict[str, Any]) -> Resource:
    """Build a resource from the engine's description."""
    sets = ("shortcuts", "categories", "subresources", "verbs")
    values: dict[str, Any] = {k: frozenset(v) if k in sets else v for k, v in fields.items()}
    return Resource(**values)
