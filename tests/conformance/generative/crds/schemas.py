"""Schemas and sample objects from one annotated sample.

The schema of a field is inferred from its sample: ``"a"`` is a string, ``[1]`` a list of integers, ``{"a!": "b"}`` an
object with a required property. The suffix ``?`` leaves a property out of the sample. `f` adds keywords.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Schema = dict[str, Any]
PREFIX = "x-kubernetes-"
#: Short names of keywords.
KEYWORDS = {
    "preserve": f"{PREFIX}preserve-unknown-fields",
    "embedded": f"{PREFIX}embedded-resource",
    "int_or_string": f"{PREFIX}int-or-string",
    "list_type": f"{PREFIX}list-type",
    "map_type": f"{PREFIX}map-type",
    "rules": f"{PREFIX}validations",
    "not_": "not",
}
INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
QUANTITY = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
GO_DURATION = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"


@dataclass(frozen=True)
class Field:
    """A sample value with the keywords of its schema."""

    sample: Any
    keywords: Schema


def f(sample: Any, /, **keywords: Any) -> Field:
    """A field. ``keys`` makes a list map, ``rules`` are texts, pairs of rule and message, or whole rules."""
    return Field(sample, keywords)


def mapping(sample: dict[str, Any], /, **keywords: Any) -> Field:
    """A map, whose values have the schema of the first value."""
    return Field(sample, {"is_map": True, **keywords})


def anything(sample: Any, /, **keywords: Any) -> Field:
    """An object with unknown fields."""
    return Field(sample, {"free": True, "type": "object", "preserve": True, **keywords})


def untyped(sample: Any) -> Field:
    """Any value."""
    return Field(sample, {"free": True, "preserve": True})


def quantity(sample: str | int, /, **keywords: Any) -> Field:
    """A quantity as controller-gen writes it."""
    return Field(
        sample, {"free": True, "anyOf": INT_OR_STRING, "int_or_string": True, "pattern": QUANTITY, **keywords}
    )


def int_or_string(sample: str | int, /, **keywords: Any) -> Field:
    """A number or a name, e.g. of a port."""
    return Field(sample, {"free": True, "anyOf": INT_OR_STRING, "int_or_string": True, **keywords})


def duration(sample: str, /, **keywords: Any) -> Field:
    """A duration with a pattern."""
    return f(sample, pattern=GO_DURATION, **keywords)


def schema_of(value: Any) -> Schema:
    """Schema of an annotated sample."""
    match value:
        case Field():
            return _annotated(value)
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer"}
        case float():
            return {"type": "number"}
        case str():
            return {"type": "string"}
        case list():
            return {"type": "array", "items": schema_of(value[0])}
        case dict():
            schema: Schema = {"type": "object"}
            if required := [k[:-1] for k in value if k.endswith("!")]:
                schema["required"] = required
            schema["properties"] = {k.rstrip("!?"): schema_of(v) for k, v in value.items()}
            return schema
    raise TypeError(f"no schema for {value!r}")


def _annotated(field: Field) -> Schema:
    keywords = dict(field.keywords)
    if keywords.pop("free", False):
        schema: Schema = {}
    elif keywords.pop("is_map", False):
        schema = {"type": "object", "additionalProperties": schema_of(next(iter(field.sample.values())))}
    else:
        schema = schema_of(field.sample)
    if keys := keywords.pop("keys", None):
        schema |= {f"{PREFIX}list-type": "map", f"{PREFIX}list-map-keys": keys}
    for name, value in keywords.items():
        schema[KEYWORDS.get(name, name)] = [_rule(r) for r in value] if name == "rules" else value
    return schema


def _rule(rule: Any) -> dict[str, Any]:
    match rule:
        case str():
            return {"rule": rule}
        case (text, message):
            return {"rule": text, "message": message}
    return dict(rule)


def sample_of(value: Any, *, minimal: bool = False) -> Any:
    """Sample object: with all fields, or with the required ones only."""
    match value:
        case Field():
            is_whole = value.keywords.get("free") or value.keywords.get("is_map")
            return sample_of(value.sample, minimal=minimal and not is_whole)
        case list():
            return [sample_of(v, minimal=minimal) for v in value]
        case dict():
            has_suffix = any(k.endswith(("!", "?")) for k in value)
            return {
                k.rstrip("!"): sample_of(v, minimal=minimal)
                for k, v in value.items()
                if not k.endswith("?") and (k.endswith("!") or not minimal or not has_suffix)
            }
    return value
