"""Variants of a manifest: one field at a time is dropped, added, or gets another value."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Iterator
from typing import Any

from .discovery import Schema, Schemas

Path = tuple[str | int, ...]
#: The variants of rarely interesting mutations are sampled: one in so many.
SAMPLE = 4
SKIPPED = {("apiVersion",), ("kind",), ("metadata",), ("status",)}
ABSENT = object()


def variants(
    manifest: dict[str, Any], discovery: Schemas, start: int = 0, count: int | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Label and object of each variant; with a count, only of a sample, which is the same each time."""
    found = _labelled(manifest, discovery)
    if count is not None:
        found = sorted(found, key=lambda it: zlib.crc32(it[0].encode()))[start : start + count]
    for label, path, value in found:
        changed = copy.deepcopy(manifest)
        _put(changed, path, value)
        yield label, changed


def _labelled(manifest: dict[str, Any], discovery: Schemas) -> list[tuple[str, Path, Any]]:
    """Label, path and new value of each variant."""
    out = []
    with_metadata = manifest["kind"] in {"ConfigMap", "Database"}
    for path, value in _mutations(
        manifest, discovery.schema(manifest), discovery, manifest["apiVersion"], ()
    ):
        if not path:
            continue
        if path[:1] in SKIPPED and not (with_metadata and path[0] == "metadata" and len(path) > 1):
            continue
        shown = "absent" if value is ABSENT else repr(value)[:60]
        out.append((f"{_text(path)} = {shown}", path, value))
    return out


def _mutations(
    value: Any, schema: Schema, discovery: Schemas, group_version: str, path: Path
) -> Iterator[tuple[Path, Any]]:
    """Path and new value of each mutation below a path."""
    schema = discovery.resolve(schema, group_version)
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        for key, child in value.items():
            below = properties.get(key) or schema.get("additionalProperties") or {}
            yield (*path, key), ABSENT
            yield from _mutations(
                child, below if isinstance(below, dict) else {}, discovery, group_version, (*path, key)
            )
        if properties:
            yield (*path, "unknownField"), 1
        elif value:
            yield (*path, "Bad Key!"), next(iter(value.values()))
            yield (*path, "ok-key"), "bad value!"
        for key in sorted(properties.keys() - value.keys()):
            for added in _samples(properties[key], discovery, group_version):
                yield (*path, key), added
        yield path, {}
    elif isinstance(value, list):
        items = schema.get("items", {})
        for i, child in enumerate(value):
            yield from _mutations(child, items, discovery, group_version, (*path, i))
        yield path, []
        if value:
            yield path, [*value, value[0]]
            yield (*path, 0), None
    else:
        yield from ((path, other) for other in _others(value, path))


def _others(value: Any, path: Path) -> Iterator[Any]:
    """Other values for a scalar."""
    rare = zlib.crc32(_text(path).encode()) % SAMPLE == 0
    if isinstance(value, bool):
        yield not value
        if rare:
            yield "text"
    elif isinstance(value, (int, float)):
        yield from (-1, 0, 1, 99_999_999)
        if rare:
            yield "text"
    elif isinstance(value, str):
        yield from ("", "Not Valid!", "other", "x" * 300)
        if rare:
            yield 5
    if rare:
        yield None


def _samples(schema: Schema, discovery: Schemas, group_version: str, depth: int = 0) -> list[Any]:
    """Values for a field that the manifest does not have."""
    schema = discovery.resolve(schema, group_version)
    match schema.get("type"):
        case "string":
            return [*schema.get("enum", [])[:2], "x"] if depth == 0 else ["x"]
        case "integer" | "number":
            return [1, -1] if depth == 0 else [1]
        case "boolean":
            return [True, False] if depth == 0 else [True]
        case "array":
            item = _samples(schema.get("items", {}), discovery, group_version, depth + 1)
            return [[], item[:1]] if depth == 0 else [item[:1]]
        case "object":
            return _objects(schema, discovery, group_version, depth)
    return ["1"]


def _objects(schema: Schema, discovery: Schemas, group_version: str, depth: int) -> list[Any]:
    """An empty object, and one with all required fields."""
    required = schema.get("required", [])
    if depth > 3:
        return [{}]
    properties = schema.get("properties", {})
    filled = {key: _samples(properties[key], discovery, group_version, depth + 1)[0] for key in required}
    if not properties and isinstance(schema.get("additionalProperties"), dict):
        filled = {"key": _samples(schema["additionalProperties"], discovery, group_version, depth + 1)[0]}
    if depth:
        return [filled]
    return [{}, filled] if filled else [{}]


def _put(target: Any, path: Path, value: Any) -> None:
    for step in path[:-1]:
        target = target[step]
    if value is ABSENT:
        del target[path[-1]]
    else:
        target[path[-1]] = value


def _text(path: Path) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)[1:]
