"""Comparison of the expected part of an object with its last state, for the messages of failed tests."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import yaml


def contains(expected: Any, actual: Any) -> bool:
    """Whether the actual value contains the expected part."""
    if isinstance(expected, Mapping):
        return isinstance(actual, Mapping) and all(
            key in actual and contains(value, actual[key]) for key, value in expected.items()
        )
    return bool(expected == actual)


def describe_mismatch(expected: Mapping[str, Any], actual: Mapping[str, Any] | None) -> str:
    """The difference between the expected part and the same fields of the object, as a unified diff."""
    lines = difflib.unified_diff(
        _dump(expected),
        _dump(_same_fields(expected, actual or {})),
        fromfile="expected",
        tofile="last state",
        lineterm="",
        n=1000,
    )
    return "\n".join(line for line in lines if not line.startswith("@@"))


def dump_object(body: Mapping[str, Any] | None) -> str:
    """The object as YAML, without the fields that only the server needs."""
    if body is None:
        return "It does not exist."
    meta = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    return "".join(f"{line}\n" for line in _dump({**body, "metadata": meta}))


def _same_fields(expected: Any, actual: Any) -> Any:
    if not isinstance(expected, Mapping) or not isinstance(actual, Mapping):
        return actual
    return {key: _same_fields(value, actual[key]) for key, value in expected.items() if key in actual}


def _dump(value: Any) -> list[str]:
    text: str = yaml.safe_dump(_plain(value), sort_keys=False, allow_unicode=True)
    return [] if value == {} else text.splitlines()


def _plain(value: Any) -> Any:
    """Only the types that YAML has: tests can expect any other ones."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)
