"""Resources and schemas that a server publishes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from .client import Client

Schema = dict[str, Any]


class Schemas(Protocol):
    """Schemas of manifests."""

    def schema(self, manifest: dict[str, Any]) -> Schema:
        """Schema of a manifest's kind."""

    def resolve(self, schema: Schema, group_version: str) -> Schema:
        """Schema behind a reference."""


@dataclass(frozen=True)
class Resource:
    """A resource of the server."""

    group_version: str
    plural: str
    kind: str
    namespaced: bool
    has_status: bool

    def collection(self, namespace: str) -> str:
        """URL path of the collection."""
        prefix = "/api/" if "/" not in self.group_version else "/apis/"
        scope = f"/namespaces/{namespace}" if self.namespaced else ""
        return f"{prefix}{self.group_version}{scope}/{self.plural}"


class Discovery:
    """Looks up resources and OpenAPI schemas, and keeps them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._documents: dict[str, Schema] = {}
        self._resources: dict[str, list[Any]] = {}

    def resource(self, manifest: dict[str, Any]) -> Resource:
        """Resource of a manifest."""
        group_version, kind = manifest["apiVersion"], manifest["kind"]
        if group_version not in self._resources:
            self._resources[group_version] = self._client.get(_root(group_version))["resources"]
        listed = self._resources[group_version]
        found = next(r for r in listed if r["kind"] == kind and "/" not in r["name"])
        plural = found["name"]
        has_status = any(r["name"] == f"{plural}/status" for r in listed)
        return Resource(group_version, plural, kind, found["namespaced"], has_status)

    def schema(self, manifest: dict[str, Any]) -> Schema:
        """OpenAPI schema of a manifest's kind; empty if none is published."""
        group_version, kind = manifest["apiVersion"], manifest["kind"]
        if group_version not in self._documents:
            self._documents[group_version] = self._client.get(f"/openapi/v3{_root(group_version)}")
        group, _, version = group_version.rpartition("/")
        expected = {"group": group, "version": version, "kind": kind}
        for schema in self._documents[group_version]["components"]["schemas"].values():
            if expected in schema.get("x-kubernetes-group-version-kind", []):
                return self.resolve(schema, group_version)
        return {}

    def resolve(self, schema: Schema, group_version: str) -> Schema:
        """Schema behind a reference."""
        while True:
            one = schema.get("allOf") or [{}]
            reference = schema.get("$ref") or one[0].get("$ref")
            if not reference:
                return schema
            name = reference.rpartition("/")[2]
            schema = self._documents[group_version]["components"]["schemas"][name]


def _root(group_version: str) -> str:
    return f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"
