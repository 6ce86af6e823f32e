"""Selectors of resources and patterns of namespaces."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import InitVar, dataclass, fields
from typing import Any, Final, TypeVar

from kopf._objects.dataclass_methods import FrozenDataclassMethods
from kopf._objects.resources import Resource, serialize_resource

V = TypeVar("V")

NAME_WITH_VERSION_PATTERN = r"^[^.]*\.v\d+((alpha|beta)\d+)?(\..*)?$"

NamespaceName = str
NamespacePattern = str | re.Pattern[str]


class Marker(enum.Enum):
    """A special value for a resource name."""

    EVERYTHING = enum.auto()


EVERYTHING: Final = Marker.EVERYTHING
"""All resources of the cluster, or of the group and version, except for Kubernetes events."""

SelectorFn = Callable[[Resource], bool]


@dataclass(frozen=True, eq=False, repr=False)
class Selector(FrozenDataclassMethods):
    """A specification of resources by names, category, or function, or of all, in a group and a version.

    Positional arguments: `name`, `name.version`, `name.group`, `name.version.group`; or `group/version` and a
    name; or a group and a name; or a group, a version, and a name.
    A name can also be `EVERYTHING` or, if alone, a function.
    """

    arg1: InitVar[str | SelectorFn | Marker | None] = None
    arg2: InitVar[str | Marker | None] = None
    arg3: InitVar[str | Marker | None] = None
    argN: InitVar[None] = None
    group: str | None = None
    version: str | None = None
    kind: str | None = None
    plural: str | None = None
    singular: str | None = None
    shortcut: str | None = None
    category: str | None = None
    any_name: str | Marker | None = None
    fn: SelectorFn | None = None

    def __post_init__(self, arg1: Any, arg2: Any, arg3: Any, argN: Any) -> None:
        for name, value in _parse_args(arg1, arg2, arg3, argN).items():
            object.__setattr__(self, name, value)

        names = [self.kind, self.plural, self.singular, self.shortcut, self.category, self.any_name, self.fn]
        specified = [name for name in names if name is not None]
        if len(specified) > 1:
            raise TypeError(f"Ambiguous resource specification with {specified!r}")
        if not specified:
            raise TypeError("Unspecific resource with no names.")
        if any(name == "" for name in specified):
            raise TypeError("Names must not be empty strings; either None or specific strings.")

    def __repr__(self) -> str:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        texts = [f"{name}={value!r}" for name, value in values.items() if value is not None]
        return f"{type(self).__name__}({', '.join(texts)})"

    @property
    def is_specific(self) -> bool:
        """Whether one kind of resources is meant, and not many of them at once."""
        names = [self.kind, self.shortcut, self.plural, self.singular]
        return any(names) or (self.any_name is not None and self.any_name is not EVERYTHING)

    def is_ambiguous(self, selected: Collection[Resource]) -> bool:
        """Whether one kind is meant, and several are selected: then none of them is served."""
        return self.is_specific and len(selected) > 1

    def check(self, resource: Resource) -> bool:
        """Whether the resource is among those that are selected."""
        return bool(self.select([resource]))

    def select(self, resources: Collection[Resource]) -> Collection[Resource]:
        """Pick the resources; of the same-named ones, the core ones win over those of other groups."""
        from kopf._objects import rules

        listed = list(resources)
        positions = rules.select_resources(serialize_selector(self), [serialize_resource(r) for r in listed])
        return {listed[i] for i in positions if self.fn is None or self.fn(listed[i])}


_NAMES = ("group", "version", "kind", "plural", "singular", "shortcut", "category")


def selector_of(options: Mapping[str, Any]) -> Selector:
    """The selector in the options of a decorator; wrong ones raise `TypeError`."""
    positional = (options["arg1"], options["arg2"], options["arg3"])
    return Selector(*positional, **{name: options[name] for name in _NAMES})


def serialize_selector(selector: Selector) -> dict[str, Any]:
    """Describe a selector of resources."""
    return {name: getattr(selector, name) for name in _NAMES} | {
        "any_name": {"everything": True} if selector.any_name is EVERYTHING else selector.any_name,
        "callable": selector.fn is not None,
    }


def _parse_args(arg1: Any, arg2: Any, arg3: Any, argN: Any) -> dict[str, Any]:
    if argN is not None:
        raise TypeError("Too many positional arguments. Max 3 positional args are accepted.")
    if callable(arg1):
        if arg2 is not None or arg3 is not None:
            raise TypeError("The callable filter cannot have any other selectors.")
        return {"fn": arg1}
    if arg3 is not None:
        return {"group": arg1, "version": arg2, "any_name": arg3}
    if arg2 is not None and isinstance(arg1, str) and "/" in arg1:
        group, version = arg1.rsplit("/", 1)
        return {"group": group, "version": version, "any_name": arg2}
    if arg2 is not None and arg1 == "v1":
        return {"group": "", "version": "v1", "any_name": arg2}
    if arg2 is not None:
        return {"group": arg1, "any_name": arg2}
    if isinstance(arg1, Marker):
        return {"any_name": arg1}
    if isinstance(arg1, str) and re.match(NAME_WITH_VERSION_PATTERN, arg1):
        name, version, *groups = arg1.split(".", 2)
        return {"any_name": name, "version": version} | ({"group": groups[0]} if groups else {})
    if isinstance(arg1, str) and "." in arg1:
        name, group = arg1.split(".", 1)
        return {"any_name": name, "group": group}
    return {} if arg1 is None else {"any_name": arg1}


class SelectorMapping(MutableMapping[Selector, V]):
    """Values by what selects resources: names, tuples, functions, `EVERYTHING`."""

    def __init__(self, src: Mapping[Any, V] | Iterable[tuple[Any, V]] = (), /) -> None:
        super().__init__()
        self._items: dict[Selector, V] = {}
        self.update(src)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._items!r})"

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Selector]:
        return iter(self._items)

    def __contains__(self, key: object) -> bool:
        return self._selector(key) in self._items

    def __getitem__(self, key: Any) -> V:
        return self._items[self._selector(key)]

    def __setitem__(self, key: Any, value: V) -> None:
        self._items[self._selector(key)] = value

    def __delitem__(self, key: Any) -> None:
        del self._items[self._selector(key)]

    def collect(self, resource: Resource) -> list[V]:
        """The values of all keys that select the resource, in the order of their insertion."""
        return [value for selector, value in self._items.items() if selector.check(resource)]

    @staticmethod
    def _selector(key: object) -> Selector:
        if isinstance(key, Selector):
            return key
        if isinstance(key, (str, Marker)) or callable(key):
            return Selector(key)
        if isinstance(key, tuple):
            return Selector(*key)
        raise TypeError(f"Unsupported selector type: {key!r}")


def match_namespace(name: str, pattern: NamespacePattern) -> bool:
    """Whether the namespace matches: a regexp in full, or comma-separated globs.

    The first glob selects; later ones exclude (with a leading `!`), or take back in what was excluded. A list
    that begins with a negation means "all but".
    """
    from kopf._objects import rules

    if isinstance(pattern, re.Pattern):
        return bool(pattern.fullmatch(name))
    return rules.match_namespace(name, pattern)


def is_served(namespace: str, patterns: Collection[NamespacePattern]) -> bool:
    """Whether an operator with these patterns serves the namespace. Without patterns, it serves all."""
    return not patterns or any(match_namespace(namespace, pattern) for pattern in patterns)


def is_exact_namespace(pattern: NamespacePattern) -> bool:
    """Whether the pattern is a name of one namespace as it is."""
    from kopf._objects import rules

    return isinstance(pattern, str) and rules.is_exact_namespace(pattern)
