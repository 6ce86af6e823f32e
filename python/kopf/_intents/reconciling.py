"""Declarations of reconcilers: their checks, defaults, and serialization.

The module is imported only by operators with reconcilers.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kopf._intents.filters import MetaFilters, verify_filters
from kopf._intents.handlers import ReconcilingHandler
from kopf._intents.namespaces import Namespaces, parse_namespaces
from kopf._intents.reconciling_settings import Backoff
from kopf._intents.registries import OperatorRegistry
from kopf._intents.selectors import Selector
from kopf._objects.dicts import FieldPath, FieldSpec, parse_field
from kopf._objects.refs import Kind
from kopf._objects.resources import Resource

Changed = str | FieldSpec | Callable[..., Hashable]
MapFn = Callable[..., Any]

_WORDS = ("essence", "generation", "labels", "annotations", "finalizers", "owners", "any")
_STANZAS = ("spec", "status", "data")
# Not the generation: for kinds without it, that is the essence.
_METADATA_WORDS = frozenset({"labels", "annotations", "finalizers", "owners", "any"})
_FINALIZER = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


@dataclass(frozen=True)
class Reference:
    """The fields by which a primary names objects; see `reference()`."""

    name: str
    namespace: FieldPath | None


@dataclass(frozen=True)
class Owned:
    """An owned kind; see `owned()`."""

    kind: Kind
    selector: Selector
    labels: MetaFilters | None
    changed: tuple[Any, ...]
    controller: bool
    echoes: bool


@dataclass(frozen=True)
class Watched:
    """A watched kind; see `watch()`."""

    kind: Kind
    selector: Selector
    map: MapFn | None
    by: Reference | None
    labels: MetaFilters | None
    annotations: MetaFilters | None
    when: Callable[..., bool] | None
    changed: tuple[Any, ...]
    namespaces: Namespaces


def owned(
    kind: Kind,
    /,
    *,
    labels: MetaFilters | None = None,
    changed: Changed | Collection[Changed] = "any",
    controller: bool = False,
    echoes: bool = True,
) -> Owned:
    """An owned kind of a reconciler: objects whose owner references name a primary.

    With `controller=True`, only the reference of the controller counts. With `echoes=False`, the reconciler
    is not called for changes by `api` or `kopf.apply` in its own calls, unless another client may have
    written in between.

    Args:
        kind: The kind: a name such as `pods`, a tuple of the group, the version and the name, or a resource.
        labels: Labels that the objects must have; others do not cause calls.
        changed: What counts as a change of the object: words, paths, functions.
        controller: Whether only the reference of the controller counts.
        echoes: Whether changes by `api` or `kopf.apply` in the reconciler's own calls cause calls, too.
    """
    verify_filters(labels=labels, annotations=None)
    return Owned(kind, parse_kind(kind), labels, parse_changed(changed), controller, echoes)


def watch(
    kind: Kind,
    /,
    *,
    map: MapFn | None = None,
    by: FieldSpec | Reference = None,
    labels: MetaFilters | None = None,
    annotations: MetaFilters | None = None,
    when: Callable[..., bool] | None = None,
    changed: Changed | Collection[Changed] = "any",
    namespaces: Literal["*"] | Collection[str] | None = None,
) -> Watched:
    """A watched kind of a reconciler: by a function that maps an object to primaries, or by a field of the
    primaries that names objects.

    Objects are watched in the namespaces of the operator; with `namespaces="*"` in all namespaces, with a
    list in these.

    Args:
        kind: The kind: a name such as `pods`, a tuple of the group, the version and the name, or a resource.
        map: A function that maps an object to its primaries.
        by: A field of the primaries with the name of the object, or a `kopf.reference`.
        labels: Labels that the objects must have.
        annotations: Annotations that the objects must have.
        when: A callable: whether the object counts.
        changed: What counts as a change of the object: words, paths, functions.
        namespaces: The namespaces; `*`: all of them; by default, those of the operator.
    """
    if (map is None) == (by is None):
        raise TypeError(f"kopf.watch({kind!r}) needs either map=, or by=, but not both.")
    if map is not None:
        _reject_coroutine_function(map, "map")
    verify_filters(labels=labels, annotations=annotations)
    named = by if by is None or isinstance(by, Reference) else reference(name=by)
    return Watched(
        kind,
        parse_kind(kind),
        map,
        named,
        labels,
        annotations,
        when,
        parse_changed(changed),
        parse_namespaces(namespaces),
    )


def reference(*, name: FieldSpec, namespace: FieldSpec = None) -> Reference:
    """The fields of a primary with the names of watched objects, and with their namespace.

    `[*]` in the path of the names stands for all items of a list. By default, the namespace is the primary's.

    Args:
        name: The path of the names; `[*]` stands for all items of a list.
        namespace: The path of the namespace; by default, the namespace is the primary's.
    """
    path = name if isinstance(name, str) else ".".join(parse_field(name))
    if not path or not re.fullmatch(r"[^\[\]*]+(\[\*\][^\[\]*]*)*", path):
        raise ValueError(f"The path may contain [*] for the items of a list, but no other brackets: {path!r}")
    return Reference(path, parse_field(namespace) or None)


def by_label(key: str) -> MapFn:
    """A mapping function for `kopf.watch`: the label names the primary, in the same namespace.

    Args:
        key: The key of the label whose value is the name of the primary.
    """

    def map_by_label(labels: Mapping[str, str], **_: Any) -> str | None:
        return labels.get(key)

    map_by_label.reads_only_metadata = True  # type: ignore[attr-defined]
    return map_by_label


def same_name() -> MapFn:
    """A mapping function for `kopf.watch`: the primary has the same name and namespace."""

    def map_to_same_name(name: str, **_: Any) -> str:
        return name

    map_to_same_name.reads_only_metadata = True  # type: ignore[attr-defined]
    return map_to_same_name


def _names_children(fn: Callable[..., Any]) -> bool:
    """Whether the function names the argument `children`: itself, or as a function that it wraps."""
    try:
        return "children" in inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return False


def needs_only_metadata(related: Owned | Watched) -> bool:
    """Whether the triggers by the kind depend only on the metadata of its objects."""
    functions = () if isinstance(related, Owned) else (related.when, related.map)
    is_known = all(fn is None or getattr(fn, "reads_only_metadata", False) for fn in functions)
    return is_known and all(isinstance(part, str) and part in _METADATA_WORDS for part in related.changed)


def parse_kind(kind: Any) -> Selector:
    """The selector of a kind; `TypeError` or `ValueError` if it selects no single kind."""
    if isinstance(kind, Resource):
        return Selector(group=kind.group, version=kind.version, plural=kind.plural)
    if isinstance(kind, str):
        selector = Selector(kind)
    elif isinstance(kind, tuple):
        selector = Selector(*kind)
    else:
        raise TypeError(f"A kind is a name, a tuple of names, or a resource. Got {kind!r}.")
    if not selector.is_specific:
        raise ValueError(f"A single kind is needed here. Got {kind!r}.")
    _reject_events(selector)
    return selector


def parse_changed(changed: Any) -> tuple[Any, ...]:
    """The parts of an object: words, paths as tuples, and functions."""
    parts = changed if isinstance(changed, (list, set, frozenset)) else [changed]
    if not parts:
        raise ValueError("changed= must not be empty.")
    return tuple(_parse_part(part) for part in parts)


def _parse_part(part: Any) -> Any:
    if callable(part):
        _reject_coroutine_function(part, "changed")
        return part
    if isinstance(part, str):
        is_path = "." in part and all(part.split("."))
        if part not in _WORDS and part not in _STANZAS and not is_path:
            known = ", ".join(repr(word) for word in (*_WORDS, *_STANZAS))
            raise ValueError(f"{part!r} is no word for changed=: use a path with dots, or one of {known}.")
        return part
    if isinstance(part, tuple) and part and all(isinstance(key, str) for key in part):
        return part
    raise TypeError(f"changed= consists of words, paths, and functions. Got {part!r}.")


def make_handler(common: Mapping[str, Any], options: Mapping[str, Any]) -> ReconcilingHandler:
    """Make the handler of `on.reconcile` with the fields that all resource handlers have; wrong options raise
    `TypeError` or `ValueError`.
    """
    _reject_events(common["selector"])
    _check_numbers(options)
    finalizer = options["finalizer"]
    if finalizer is not None and not options["deletion"]:
        raise ValueError("finalizer= needs deletion=True.")
    if finalizer is not None and not _FINALIZER.fullmatch(finalizer):
        raise ValueError(f"finalizer= must be domain/name. Got {finalizer!r}.")
    if options["initial"] not in (None, True, False, "unobserved"):
        raise ValueError(f"initial= must be True, False, or 'unobserved'. Got {options['initial']!r}.")
    changed = options["changed"] if options["changed"] is not None else "essence"
    return ReconcilingHandler(
        **common,
        owns=tuple(item if isinstance(item, Owned) else owned(item) for item in _collection(options, "owns")),
        watches=tuple(_check_watched(item) for item in _collection(options, "watches")),
        changed=parse_changed(changed),
        initial=True if options["initial"] is None else options["initial"],
        deletion=bool(options["deletion"]),
        finalizer=finalizer,
        **{name: options[name] for name in _TIMES},
        concurrency=options["concurrency"],
        condition=options["condition"],
        observe=bool(options["observe"]),
        reads_children=_names_children(common["fn"]),
    )


_TIMES = ("debounce", "debounce_limit", "min_interval", "resync", "reconcile_timeout")


def _collection(options: Mapping[str, Any], name: str) -> Collection[Any]:
    items = options[name] or ()
    if isinstance(items, (str, Owned, Watched)) or not isinstance(items, Collection):
        raise TypeError(f"{name}= must be a list. Got {items!r}.")
    return items


def _check_watched(item: Any) -> Watched:
    if not isinstance(item, Watched):
        raise TypeError(f"watches= consists of kopf.watch(...). Got {item!r}.")
    return item


def _check_numbers(options: Mapping[str, Any]) -> None:
    for name in (*_TIMES, "timeout", "retries", "backoff"):
        value = options[name]
        if isinstance(value, (int, float)) and value < 0:
            raise ValueError(f"{name}= must not be negative. Got {value!r}.")
    backoff = options["backoff"]
    if backoff is not None and not isinstance(backoff, (int, float, Backoff)) and not callable(backoff):
        raise TypeError(f"backoff= must be a number, a kopf.Backoff, or a function. Got {backoff!r}.")
    if callable(backoff):
        _reject_coroutine_function(backoff, "backoff")
    if options["concurrency"] is not None and options["concurrency"] < 1:
        raise ValueError(f"concurrency= must be at least 1. Got {options['concurrency']!r}.")


def _reject_events(selector: Selector) -> None:
    names = (selector.any_name, selector.plural, selector.kind, selector.singular, selector.shortcut)
    is_events_group = selector.group in (None, "", "events.k8s.io")
    if is_events_group and any(name in ("events", "event", "Event", "ev") for name in names):
        raise ValueError("Kubernetes events cannot be reconciled or watched by reconcilers.")


def _reject_coroutine_function(fn: Callable[..., Any], name: str) -> None:
    if inspect.iscoroutinefunction(fn):
        raise TypeError(f"{name}= must be a synchronous function: it is called for every change. Got {fn!r}.")


def check_ids(registry: OperatorRegistry, handler: ReconcilingHandler) -> None:
    """Reject the same id for two functions with the same selector."""
    for other in registry._reconciling.get_all_handlers():
        same_selector = repr(other.selector) == repr(handler.selector)
        if other.id == handler.id and other.fn is not handler.fn and same_selector:
            raise ValueError(f"There is another reconciler with the id {str(handler.id)!r}: set id=...")
