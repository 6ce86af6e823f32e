"""Discovery of all resources of a cluster, as selectors of handlers need them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kopf._objects.resources import Resource
from kopf._testing.client import ApiError


def discover(call: Callable[[str, str], Any]) -> list[Resource]:
    """The resources in all versions of all groups; groups that cannot be read are left out."""
    resources: list[Resource] = []
    for version in call("GET", "/api")["versions"]:
        resources += _resources(call("GET", f"/api/{version}"), "", version, preferred=True)
    for group in call("GET", "/apis")["groups"]:
        name = group["name"]
        preferred = (group.get("preferredVersion") or group["versions"][0])["version"]
        for item in group["versions"]:
            version = item["version"]
            try:
                served = call("GET", f"/apis/{name}/{version}")
            except ApiError as error:
                if error.code not in (403, 404, 503):  # aggregated APIs come and go
                    raise
                continue
            resources += _resources(served, name, version, preferred=version == preferred)
    return resources


def _resources(served: Any, group: str, version: str, *, preferred: bool) -> Iterator[Resource]:
    items = served["resources"]
    for item in items:
        plural = item["name"]
        if "/" in plural:
            continue
        prefix = f"{plural}/"
        yield Resource(
            group=group,
            version=version,
            plural=plural,
            kind=item["kind"],
            singular=item.get("singularName") or None,
            shortcuts=frozenset(item.get("shortNames") or ()),
            categories=frozenset(item.get("categories") or ()),
            subresources=frozenset(
                other["name"].removeprefix(prefix) for other in items if other["name"].startswith(prefix)
            ),
            namespaced=item["namespaced"],
            preferred=preferred,
            verbs=frozenset(item.get("verbs") or ()),
        )
