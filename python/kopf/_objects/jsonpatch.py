"""Difference of two JSON documents as an RFC 6902 patch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Operation = dict[str, Any]


def operations(old: Any, new: Any) -> list[Operation]:
    """List the operations that turn one document into another, in their order.

    Those of a mapping are, as in Kopf 1.45: removals, additions, changes of what both documents have.
    Values are compared as JSON does, not as Python: true is not 1, and 1.0 is not 1.
    """
    return list(_compare(old, new, ""))


def _compare(old: Any, new: Any, path: str) -> Iterator[Operation]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        yield from _compare_mappings(old, new, path)
    elif isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)):
        yield from _compare_lists(list(old), list(new), path)
    elif not _same(old, new):
        yield {"op": "replace", "path": path, "value": new}


def _compare_mappings(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Operation]:
    for key in old:
        if key not in new:
            yield {"op": "remove", "path": _join(path, key)}
    for key, value in new.items():
        if key not in old:
            yield {"op": "add", "path": _join(path, key), "value": value}
    for key, value in new.items():
        if key in old:
            yield from _compare(old[key], value, _join(path, key))


def _compare_lists(old: list[Any], new: list[Any], path: str) -> Iterator[Operation]:
    # The common prefix and suffix stay unchanged; this covers most edits: one item added or removed.
    head = 0
    while head < min(len(old), len(new)) and _same(old[head], new[head]):
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and _same(old[-1 - tail], new[-1 - tail]):
        tail += 1
    old, new = old[head : len(old) - tail], new[head : len(new) - tail]

    common = min(len(old), len(new))
    for index in range(common):
        yield from _compare(old[index], new[index], _join(path, head + index))
    for index in reversed(range(common, len(old))):
        yield {"op": "remove", "path": _join(path, head + index)}
    for index in range(common, len(new)):
        yield {"op": "add", "path": _join(path, head + index), "value": new[index]}


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_same(value, b[key]) for key, value in a.items())
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    for kind in (bool, int, float):
        if isinstance(a, kind) or isinstance(b, kind):
            return isinstance(a, kind) and isinstance(b, kind) and bool(a == b)
    return bool(a == b)


def _join(path: str, key: str | int) -> str:
    escaped = str(key).replace("~", "~0").replace("/", "~1")
    return f"{path}/{escaped}"
