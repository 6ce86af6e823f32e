"""Access to nested mappings by field paths."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from typing import Any, Final

from kopf._objects import client_models

FieldPath = tuple[str, ...]
"""The path of a field: the keys from the object to the field."""

FieldSpec = str | FieldPath | list[str] | None
"""A field: a text with dots, such as `spec.replicas`, or its keys; None: the whole object."""


class Unset(enum.Enum):
    """The absence of an argument or of a value, where None is a value by itself."""

    token = enum.auto()


UNSET: Final = Unset.token


class Missing(enum.Enum):
    """What filters get for a field that is not there; unlike None, it is never a value of a field."""

    token = enum.auto()


MISSING: Final = Missing.token


def parse_field(field: FieldSpec) -> FieldPath:
    """Parse a declared field (dotted string, list, tuple, None); raise `ValueError` for other types."""
    if field is None:
        return ()
    if isinstance(field, str):
        return tuple(field.split("."))
    if isinstance(field, (list, tuple)):
        return tuple(field)
    raise ValueError(f"Field must be either a str, or a list/tuple. Got {field!r}")


def not_a_dict(key: str, value: Any) -> TypeError:
    """The error for a level of a path that cannot be descended into."""
    return TypeError(f"The structure is not a dict with field {key!r}: {value!r}")


def resolve(d: Mapping[Any, Any] | None, field: FieldSpec, default: Any = UNSET) -> Any:
    """Get the value at the path.

    Without a default, a missing key raises `KeyError`, and a level that is not a mapping raises `TypeError`.
    With a default, it is returned in both cases.
    """
    result: Any = d
    for key in parse_field(field):
        if type(result) is dict or isinstance(result, Mapping):
            try:
                result = result[key]
            except KeyError:
                if default is UNSET:
                    raise
                return default
        elif default is UNSET:
            raise not_a_dict(key, result)
        else:
            return default
    return result


def resolve_obj(obj: Any, field: FieldSpec, default: Any = UNSET) -> Any:
    """Get the value at the path in a dict, or in a model of a Kubernetes client by its JSON names.

    The levels of a model that are None count as absent. Errors are those of `resolve`.
    """
    result: Any = obj
    for key in parse_field(field):
        try:
            if isinstance(result, Mapping):
                result = result[key]
            elif client_models.is_model(result):
                attrs = {json_name: attr for attr, json_name in result.attribute_map.items()}
                result = getattr(result, attrs.get(key, key), None)
                if result is None:
                    raise KeyError(key)
            elif default is UNSET:
                raise not_a_dict(key, result)
            else:
                return default
        except KeyError:
            if default is UNSET:
                raise
            return default
    return result


def ensure(d: MutableMapping[Any, Any], field: FieldSpec, value: Any) -> None:
    """Set the value at the path, creating the missing levels; an empty path is a `ValueError`."""
    path = parse_field(field)
    if not path:
        raise ValueError("Setting a root of a dict is impossible. Provide the specific fields.")
    level: Any = d
    for key in path[:-1]:
        try:
            level = level[key]
        except KeyError:
            level[key] = {}
            level = level[key]
    level[path[-1]] = value


def remove(d: MutableMapping[Any, Any], field: FieldSpec) -> None:
    """Remove the value at the path and then the levels that became empty by that; missing keys are ignored.

    A level that exists and is not a mapping raises `TypeError`.
    """
    path = parse_field(field)
    if not path:
        d.clear()
        return
    levels: list[Any] = [d]
    for key in path:
        level = levels[-1]
        if not isinstance(level, Mapping):
            raise not_a_dict(key, level)
        if key not in level:
            break
        levels.append(level[key])
    else:
        levels.pop()
        del levels[-1][path[-1]]
    while len(levels) > 1 and not levels.pop():
        del levels[-1][path[len(levels) - 1]]


def cherrypick(
    src: Mapping[Any, Any],
    dst: MutableMapping[Any, Any],
    fields: Collection[FieldSpec] | None,
    *,
    picker: Any = None,
) -> None:
    """Copy the listed fields that exist in the source; `picker`, if given, is applied to each value."""
    for field in fields or ():
        try:
            value = resolve(src, field)
        except KeyError:
            continue
        ensure(dst, field, value if picker is None else picker(value))


def walk(objs: Any, *, nested: Collection[FieldSpec] | None = None) -> Iterator[Any]:
    """Yield each object of an arbitrarily nested structure of objects, and then its existing nested parts.

    Mappings and client models are objects; None is nothing; other iterables are descended into.
    Anything else is yielded as it is, for the caller to reject.
    """
    if objs is None:
        return
    if client_models.is_pykube_object(objs):
        yield from walk(objs.obj, nested=nested)
    elif isinstance(objs, Mapping) or client_models.is_model(objs):
        yield objs
        for field in nested if nested is not None else ():
            try:
                yield resolve_obj(objs, field)
            except KeyError:
                continue
    elif hasattr(type(objs), "__iter__"):
        for obj in objs:
            yield from walk(obj, nested=nested)
    else:
        yield objs
