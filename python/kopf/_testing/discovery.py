"""Where the objects of a kind live. It owns the names by which kinds are called, found by discovery; it must
not know what is done with the objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

CallFn = Callable[[str, str], Any]
Object = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """The objects of one kind in one version."""

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
        """As it is written in the objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """The path of the collection, of an object, or of its subresource."""
        parts = ["api", self.version] if not self.group else ["apis", self.group, self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/" + "/".join(parts)


class Unknown(LookupError):
    """The cluster serves no such kind."""


class Catalog:
    """The kinds that a cluster serves, asked for when they are needed."""

    def __init__(self, call: CallFn) -> None:
        super().__init__()
        self._call = call
        self._places: list[Place] | None = None
        self._learned: list[Place] = [DEFINITIONS, NAMESPACES]

    def forget(self) -> None:
        """Ask anew: a definition has come or gone."""
        self._places = None
        self._learned = [DEFINITIONS, NAMESPACES]

    def learn(self, definition: Mapping[str, Any]) -> list[Place]:
        """Take the kinds of a definition (CRD) from it, without asking; the preferred version first."""
        spec = definition["spec"]
        names = spec["names"]
        plural, kind = names["plural"], names["kind"]
        called = {
            plural,
            kind.lower(),
            names.get("singular") or kind.lower(),
            *(names.get("shortNames") or ()),
        }
        served = [version for version in spec["versions"] if version.get("served")]
        learned = [
            Place(
                group=spec["group"],
                version=version["name"],
                plural=plural,
                kind=kind,
                namespaced=spec["scope"] == "Namespaced",
                subresources=frozenset(version.get("subresources") or ()),
                names=frozenset(called),
                verbs=frozenset({"list", "watch", "create", "delete"}),
            )
            for version in served
        ]
        self._learned = [it for it in self._learned if (it.group, it.plural) != (spec["group"], plural)]
        self._learned += learned
        return learned

    def all(self) -> list[Place]:
        """Everything in the preferred versions first."""
        if self._places is None:
            self._places = list(self._discover())
        return self._places

    def find(self, what: str | Mapping[str, Any]) -> Place:
        """By a body; or by any name: plural, singular, kind, short name; with `.group`, or
        `group/version/plural`.
        """
        place = self._find(what)
        if place is None:
            self.forget()
            place = self._find(what)
        if place is None:
            name = what if isinstance(what, str) else f"{what.get('apiVersion')}, kind {what.get('kind')}"
            raise Unknown(f"The cluster serves no {name!r}. Is its definition (CRD) applied?")
        return place

    def _find(self, what: str | Mapping[str, Any]) -> Place | None:
        # What was learned costs no requests: all is asked for only if it is not enough.
        known = next((it for it in self._learned if _fits(it, what)), None)
        return known or next((it for it in self.all() if _fits(it, what)), None)

    def _discover(self) -> Iterator[Place]:
        for version in self._call("GET", "/api")["versions"]:
            yield from self._places_of("", version, f"/api/{version}")
        others: list[tuple[str, str]] = []
        for group in self._call("GET", "/apis")["groups"]:
            preferred = group.get("preferredVersion", group["versions"][0])["version"]
            yield from self._places_of(group["name"], preferred, f"/apis/{group['name']}/{preferred}")
            versions = [it["version"] for it in group["versions"]]
            others += [(group["name"], it) for it in versions if it != preferred]
        for name, version in others:
            yield from self._places_of(name, version, f"/apis/{name}/{version}")

    def _places_of(self, group: str, version: str, path: str) -> Iterator[Place]:
        found = self._call("GET", path)["resources"]
        for item in found:
            plural = item["name"]
            if "/" in plural:
                continue
            subresources = {it["name"].split("/")[1] for it in found if it["name"].startswith(plural + "/")}
            names = {plural, item["kind"].lower(), item.get("singularName"), *(item.get("shortNames") or ())}
            yield Place(
                group=group,
                version=version,
                plural=plural,
                kind=item["kind"],
                namespaced=bool(item.get("namespaced")),
                subresources=frozenset(subresources),
                names=frozenset(it for it in names if it),
                verbs=frozenset(item.get("verbs") or ()),
            )


def _fits(place: Place, what: str | Mapping[str, Any]) -> bool:
    if not isinstance(what, str):
        return (place.api_version, place.kind) == (what.get("apiVersion"), what.get("kind"))
    if "/" in what:
        api_version, _, name = what.rpartition("/")
        return place.api_version == api_version and name.lower() in place.names
    name, _, group = what.lower().partition(".")
    return name in place.names and group in ("", place.group)


DEFINITIONS = Place(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
    subresources=frozenset({"status"}),
    names=frozenset({"customresourcedefinitions", "customresourcedefinition", "crd", "crds"}),
    verbs=frozenset({"list", "watch", "create", "delete"}),
)
NAMESPACES = Place(
    group="",
    version="v1",
    plural="namespaces",
    kind="Namespace",
    namespaced=False,
    subresources=frozenset({"status"}),
    names=frozenset({"namespaces", "namespace", "ns"}),
    verbs=frozenset({"list", "watch", "create", "delete"}),
)
