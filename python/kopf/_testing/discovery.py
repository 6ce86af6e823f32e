"""Discovery of the resources that a cluster serves, by any of their names."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

CallFn = Callable[[str, str], Any]
Object = dict[str, Any]


@dataclass(frozen=True)
class ResourceMapping:
    """One resource in one version, with the names by which it can be found."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    subresources: frozenset[str]
    names: frozenset[str]
    verbs: frozenset[str]

    @property
    def api_version(self) -> str:
        """The `apiVersion` of the objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """The path of the collection, of an object, or of its subresource."""
        parts = ["api", self.version] if not self.group else ["apis", self.group, self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/" + "/".join(parts)


class UnknownKindError(LookupError):
    """The cluster does not serve this kind."""

    __module__ = "kopf.testing"


class Discovery:
    """The resources that a cluster serves, requested when they are needed."""

    def __init__(self, call: CallFn) -> None:
        super().__init__()
        self._call = call
        self._lock = threading.Lock()  # of the two following
        self._discovered: list[ResourceMapping] = []
        self._undiscovered = self._discover()
        self._registered: list[ResourceMapping] = [CRDS, NAMESPACES]

    def invalidate(self) -> None:
        """Discard the cached resources: a CRD was created or deleted."""
        with self._lock:
            self._discovered, self._undiscovered = [], self._discover()
        self._registered = [CRDS, NAMESPACES]

    def register(self, crd: Mapping[str, Any]) -> list[ResourceMapping]:
        """Register the resources of a CRD without requests; the preferred version comes first."""
        registered = mappings_of(crd)
        replaced = {(item.group, item.plural) for item in registered}
        self._registered = [item for item in self._registered if (item.group, item.plural) not in replaced]
        self._registered += registered
        return registered

    def all(self) -> list[ResourceMapping]:
        """All resources; the preferred versions come first."""
        return list(self._all())

    def _all(self) -> Iterator[ResourceMapping]:
        """All resources, with no more requests than are needed for those that are taken."""
        for index in itertools.count():
            with self._lock:
                try:
                    # Several, if another thread has invalidated them.
                    while len(self._discovered) <= index:
                        self._discovered.append(next(self._undiscovered))
                except StopIteration:
                    return
                except BaseException:  # it ends the generator
                    self._discovered, self._undiscovered = [], self._discover()
                    raise
                mapping = self._discovered[index]
            yield mapping

    def find(self, what: str | Mapping[str, Any]) -> ResourceMapping:
        """Find a resource by a body, or by any name: plural, singular, kind, short name; with `.group`, or as
        `group/version/plural`.
        """
        mapping = self._find(what)
        if mapping is None:
            self.invalidate()
            mapping = self._find(what)
        if mapping is None:
            name = what if isinstance(what, str) else f"{what.get('apiVersion')}, kind {what.get('kind')}"
            raise UnknownKindError(f"The cluster serves no {name!r}. Is its CRD applied?")
        return mapping

    def _find(self, what: str | Mapping[str, Any]) -> ResourceMapping | None:
        # Registered resources cost no requests: the others are requested only if they are needed.
        registered_mapping = next((item for item in self._registered if _matches(item, what)), None)
        return registered_mapping or next((item for item in self._all() if _matches(item, what)), None)

    def _discover(self) -> Iterator[ResourceMapping]:
        for version in self._call("GET", "/api")["versions"]:
            yield from self._mappings_of("", version, f"/api/{version}")
        others: list[tuple[str, str]] = []
        for group in self._call("GET", "/apis")["groups"]:
            preferred = group.get("preferredVersion", group["versions"][0])["version"]
            yield from self._mappings_of(group["name"], preferred, f"/apis/{group['name']}/{preferred}")
            versions = [item["version"] for item in group["versions"]]
            others += [(group["name"], item) for item in versions if item != preferred]
        for name, version in others:
            yield from self._mappings_of(name, version, f"/apis/{name}/{version}")

    def _mappings_of(self, group: str, version: str, path: str) -> Iterator[ResourceMapping]:
        found = self._call("GET", path)["resources"]
        for item in found:
            plural = item["name"]
            if "/" in plural:
                continue
            subresources = {
                item["name"].split("/")[1] for item in found if item["name"].startswith(plural + "/")
            }
            names = {plural, item["kind"].lower(), item.get("singularName"), *(item.get("shortNames") or ())}
            yield ResourceMapping(
                group=group,
                version=version,
                plural=plural,
                kind=item["kind"],
                namespaced=bool(item.get("namespaced")),
                subresources=frozenset(subresources),
                names=frozenset(item for item in names if item),
                verbs=frozenset(item.get("verbs") or ()),
            )


def mappings_of(crd: Mapping[str, Any]) -> list[ResourceMapping]:
    """The resources of a CRD, one for each served version."""
    spec = crd["spec"]
    names = spec["names"]
    plural, kind = names["plural"], names["kind"]
    called = {
        plural,
        kind.lower(),
        names.get("singular") or kind.lower(),
        *(names.get("shortNames") or ()),
    }
    return [
        ResourceMapping(
            group=spec["group"],
            version=version["name"],
            plural=plural,
            kind=kind,
            namespaced=spec["scope"] == "Namespaced",
            subresources=frozenset(version.get("subresources") or ()),
            names=frozenset(called),
            verbs=frozenset({"list", "watch", "create", "delete"}),
        )
        for version in spec["versions"]
        if version.get("served")
    ]


def _matches(mapping: ResourceMapping, what: str | Mapping[str, Any]) -> bool:
    if not isinstance(what, str):
        return (mapping.api_version, mapping.kind) == (what.get("apiVersion"), what.get("kind"))
    if "/" in what:
        api_version, _, name = what.rpartition("/")
        return mapping.api_version == api_version and name.lower() in mapping.names
    name, _, group = what.lower().partition(".")
    return name in mapping.names and group in ("", mapping.group)


CRDS = ResourceMapping(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
    subresources=frozenset({"status"}),
    names=frozenset({"customresourcedefinitions", "customresourcedefinition", "crd", "crds"}),
    verbs=frozenset({"list", "watch", "create", "delete"}),
)
NAMESPACES = ResourceMapping(
    group="",
    version="v1",
    plural="namespaces",
    kind="Namespace",
    namespaced=False,
    subresources=frozenset({"status"}),
    names=frozenset({"namespaces", "namespace", "ns"}),
    verbs=frozenset({"list", "watch", "create", "delete"}),
)
