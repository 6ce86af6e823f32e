"""Declarations of caches: their checks, and their serialization.

The module is imported only by operators with caches.
"""

from __future__ import annotations

import inspect
import itertools
import keyword
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from kopf._intents.caching_settings import CachingSettings
from kopf._intents.causes import ChangingCause, WatchingCause, WebhookCause
from kopf._intents.filters import MetaFilterToken
from kopf._intents.handlers import ReconcilingHandler, ResourceHandler
from kopf._intents.namespaces import Namespaces, parse_namespaces, serialize_namespaces
from kopf._intents.reconciling import Owned
from kopf._intents.registries import OperatorRegistry, index_ids
from kopf._intents.selectors import Selector, selector_of, serialize_selector
from kopf._objects.dicts import FieldPath, FieldSpec, parse_field

Labels = Mapping[str, str | Collection[str] | MetaFilterToken]
KeyFn = Callable[..., Any]
By = Mapping[str, FieldSpec | KeyFn]

_PATH = re.compile(r"[^\[\]*]+(\[\*\][^\[\]*]*)*")
_LABEL_KEY = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_SELECT_ARGUMENTS = frozenset({"self", "namespace", "labels", "fields", "owner"})
_ARGUMENTS = {
    *(WatchingCause._arguments | ChangingCause._arguments | WebhookCause._arguments),
    *("api", "children", "conditions", "deleting", "param", "retry"),
    *("runtime", "settings", "started", "stopped"),
}
_IDENTITY: tuple[FieldPath, ...] = (
    ("apiVersion",),
    ("kind",),
    ("metadata",),
    *(("metadata", name) for name in ("name", "namespace", "uid", "resourceVersion", "ownerReferences")),
)


@dataclass(frozen=True, eq=False)
class CacheDeclaration:
    """A declared cache."""

    id: str
    selector: Selector
    label_selector: str
    fields: tuple[tuple[FieldPath, str], ...]
    namespaces: Namespaces
    by: Mapping[str, str | FieldPath | KeyFn]
    metadata_only: bool
    drop: tuple[FieldPath, ...] | None
    optional: bool
    owner: tuple[int, bool] | None = None
    """Only objects that the primaries of this reconciler own: its number, and whether as controllers."""


def make_declaration(options: Mapping[str, Any]) -> CacheDeclaration:
    """Make the declaration of a cache; wrong options raise `TypeError` or `ValueError`."""
    selector = selector_of(options)
    if not selector.is_specific:
        raise ValueError(f"A cache has objects of a single kind. Got {selector!r}.")
    drop = None if options["drop"] is None else _parse_drop(options["drop"])
    by = _parse_by(options["by"])
    fields = _parse_fields(options["fields"])
    _check_dropped(drop or (), [*(path for path, _ in fields), *by.values()])
    return CacheDeclaration(
        id=_parse_id(options["id"], selector),
        selector=selector,
        label_selector=to_label_selector(options["labels"]),
        fields=fields,
        namespaces=parse_namespaces(options["namespaces"]),
        by=by,
        metadata_only=bool(options["metadata_only"]),
        drop=drop,
        optional=bool(options["optional"]),
    )


def check_id(registry: OperatorRegistry, declaration: CacheDeclaration) -> None:
    """Reject an id that another cache or an index has: handlers get them as arguments."""
    if declaration.id in index_ids(registry):
        raise ValueError(f"There is an index with the id {declaration.id!r}: set id=...")
    if declaration.id in registry._caches:
        raise ValueError(f"There is another cache with the id {declaration.id!r}: set id=...")


def to_label_selector(labels: Labels | str | None) -> str:
    """The label selector in the grammar of the Kubernetes API."""
    if labels is None:
        return ""
    if isinstance(labels, str):
        return labels.strip()
    if not isinstance(labels, Mapping):
        raise TypeError(f"labels= must be a mapping or a label selector. Got {labels!r}.")
    return ",".join(_requirement(key, value) for key, value in labels.items())


def _requirement(key: str, value: Any) -> str:
    if not isinstance(key, str) or not _LABEL_KEY.fullmatch(key):
        raise ValueError(f"{key!r} is no label.")
    if value is MetaFilterToken.PRESENT:
        return key
    if value is MetaFilterToken.ABSENT:
        return f"!{key}"
    if isinstance(value, str):
        return f"{key}={_label_value(value)}"
    if isinstance(value, Collection) and value and not isinstance(value, (bytes, Mapping)):
        return f"{key} in ({','.join(sorted(_label_value(one) for one in value))})"
    raise TypeError(
        f"The filter of a label in a cache is kopf.PRESENT, kopf.ABSENT, a value, or a list of values;"
        f" functions are not possible. Got {value!r} for {key!r}."
    )


def _label_value(value: Any) -> str:
    if not isinstance(value, str) or not _LABEL_VALUE.fullmatch(value):
        raise ValueError(f"{value!r} is no value of a label.")
    return value


def _parse_id(id: str | None, selector: Selector) -> str:
    if id is None:
        id = selector.plural or (selector.any_name if isinstance(selector.any_name, str) else None)
        if id is None:
            raise ValueError("A cache of a kind without its plural name needs id=...")
    if not isinstance(id, str):
        raise TypeError(f"id= must be a string. Got {id!r}.")
    if not id.isidentifier() or keyword.iskeyword(id):
        raise ValueError(f"The id {id!r} cannot be the name of an argument: set id=...")
    if id in _ARGUMENTS:
        raise ValueError(f"Handlers have another argument {id!r}: set id=...")
    return id


def _parse_by(by: By | None) -> dict[str, str | FieldPath | KeyFn]:
    if by is None:
        return {}
    if not isinstance(by, Mapping):
        raise TypeError(f"by= must be a mapping of names to paths or functions. Got {by!r}.")
    return {_check_key(name): _parse_source(name, source) for name, source in by.items()}


def _check_key(name: Any) -> str:
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f"A key in by= must be the name of an argument of select(). Got {name!r}.")
    if name in _SELECT_ARGUMENTS:
        raise ValueError(f"select() has another argument {name!r}: rename the key in by=.")
    return name


def _parse_source(name: str, source: Any) -> str | FieldPath | KeyFn:
    if callable(source):
        if inspect.iscoroutinefunction(source):
            raise TypeError(
                f"by= needs synchronous functions: they are called for each change. Got {name!r}."
            )
        return cast(KeyFn, source)
    if isinstance(source, str):
        if not _PATH.fullmatch(source) or not all(source.replace("[*]", "").split(".")):
            raise ValueError(
                f"The path of the key {name!r} may contain [*] for items of a list, but no other brackets:"
                f" {source!r}"
            )
        return source
    if isinstance(source, (tuple, list)) and source and all(isinstance(key, str) for key in source):
        return tuple(source)
    raise TypeError(f"by= consists of paths and functions. Got {source!r} for {name!r}.")


def _parse_fields(fields: Mapping[str, str] | None) -> tuple[tuple[FieldPath, str], ...]:
    if fields is None:
        return ()
    if not isinstance(fields, Mapping):
        raise TypeError(f"fields= must be a mapping of paths to values. Got {fields!r}.")
    for path, value in fields.items():
        if not isinstance(path, str) or not all(path.split(".")) or not isinstance(value, str):
            raise ValueError(
                f"fields= are field selectors of the server: paths with dots, and strings as their values."
                f" Got {path!r}: {value!r}."
            )
    return tuple((parse_field(path), value) for path, value in fields.items())


def _parse_drop(drop: Any) -> tuple[FieldPath, ...]:
    if isinstance(drop, str) or not isinstance(drop, Collection):
        raise TypeError(f"drop= must be a list of paths. Got {drop!r}.")
    paths = tuple(parse_field(path) for path in drop)
    for path in paths:
        if not path or not all(isinstance(key, str) and key for key in path):
            raise ValueError(f"drop= consists of paths of fields. Got {drop!r}.")
        if path in _IDENTITY:
            raise ValueError(f"A cache cannot drop {'.'.join(path)!r}.")
    return paths


def _check_dropped(drop: Collection[FieldPath], needed: Collection[Any]) -> None:
    for source in needed:
        if callable(source):
            continue
        path = tuple(source.split("[*]")[0].split(".")) if isinstance(source, str) else source
        for dropped in drop:
            if path[: len(dropped)] == dropped:
                raise ValueError(f"The field {'.'.join(path)!r} is needed, and cannot be in drop=.")


def serialize_cache(declaration: CacheDeclaration, settings: CachingSettings) -> dict[str, Any]:
    """Describe a cache for the engine."""
    drop = declaration.drop if declaration.drop is not None else _parse_drop(settings.drop)
    return {
        "id": declaration.id,
        "kind": "caching",
        "selector": serialize_selector(declaration.selector),
        "metadata_only": declaration.metadata_only,
        "label_selector": declaration.label_selector,
        "fields": [[list(path), value] for path, value in declaration.fields],
        "namespaces": serialize_namespaces(declaration.namespaces),
        "by": [[name, _serialize_source(source)] for name, source in declaration.by.items()],
        "drop": [list(path) for path in drop],
        "optional": declaration.optional,
        "rest": float(settings.rest),
        "warn_above": int(settings.warn_above),
        "owner": _serialize_owner(declaration.owner),
    }


def _serialize_owner(owner: tuple[int, bool] | None) -> dict[str, Any] | None:
    return None if owner is None else {"reconciler": owner[0], "controller": owner[1]}


def children_caches(handlers: Sequence[ResourceHandler]) -> Iterator[CacheDeclaration]:
    """The caches of the children of those reconcilers that read them. Their ids are shown in metrics."""
    used: set[str] = set()
    for number, handler in enumerate(handlers):
        if not isinstance(handler, ReconcilingHandler) or not handler.reads_children:
            continue
        for owned in handler.owns:
            kind = "/".join(owned.kind) if isinstance(owned.kind, tuple) else str(owned.kind)
            names = itertools.chain([kind], (f"{kind}#{count}" for count in itertools.count(2)))
            id = next(id for name in names if (id := f"{handler.id}/{name}") not in used)
            used.add(id)
            yield _children_cache(number, owned, id)


def _children_cache(reconciler: int, owned: Owned, id: str) -> CacheDeclaration:
    """Make the cache of the objects that the primaries of a reconciler own.

    Functions in the filters of labels only concern triggers.
    """
    labels = {key: value for key, value in (owned.labels or {}).items() if not _is_function(value)}
    return CacheDeclaration(
        id=id,
        selector=owned.selector,
        label_selector=to_label_selector(cast(Labels, labels)),
        fields=(),
        namespaces=None,
        by={},
        metadata_only=False,
        drop=None,
        optional=False,
        owner=(reconciler, owned.controller),
    )


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, MetaFilterToken)


def _serialize_source(source: str | FieldPath | KeyFn) -> Any:
    if isinstance(source, str):
        return {"path": source}
    return {"field": list(source)} if isinstance(source, tuple) else "function"
