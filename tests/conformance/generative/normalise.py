"""Replaces what differs between two servers without being a difference: uids, times, versions, addresses."""

from __future__ import annotations

import json
import re
from typing import Any

from .client import Answer

PATTERNS = [
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uid>"),
    (re.compile(r"10\.0\.0\.\d+"), "<ip>"),
    (re.compile(r"10\.0\.\d+\.\d+"), "<ip>"),
    (re.compile(r"20(2[6-9]|[3-9]\d)-(?!01-01)\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "<time>"),
    (re.compile(r"resource version: \d+"), "resource version: <rv>"),
    (re.compile(r'(?<=resourceVersion\\":\\")\d+'), "<rv>"),
    # A comparison for people, whose form is not stable.
    (re.compile(r"(?<=previously negative\))\n.*", re.DOTALL), ""),
]
#: Members whose items have no order: managed fields of one second, causes from members of maps, discovered
#: resources.
UNORDERED = {"managedFields", "causes", "resources"}
#: Ages in the cells of tables.
AGE = re.compile(r"(\d+[smhdy])+")


def normalise(answer: Answer) -> dict[str, Any]:
    """Comparable form of an answer."""
    return {"code": answer.code, "body": _value("", answer.body), "warnings": sorted(answer.warnings)}


def _value(key: str, value: Any) -> Any:
    if isinstance(value, str):
        if key == "resourceVersion" and value:
            return "<version>"
        return _text(value)
    if isinstance(value, list):
        items = [_value(key, v) for v in value]
        if key == "cells":
            items = ["<age>" if isinstance(v, str) and AGE.fullmatch(v) else v for v in items]
        return sorted(items, key=lambda v: json.dumps(v, sort_keys=True)) if key in UNORDERED else items
    if isinstance(value, dict):
        out = {k: _value(k, v) for k, v in value.items()}
        # The message repeats several causes in their accidental order.
        if "message" in out and len((value.get("details") or {}).get("causes") or ()) > 1:
            out["message"] = "<see causes>"
        if "time" in out and "fieldsType" in out:
            out["time"] = "<time>"
        return out
    if key in {"nodePort", "healthCheckNodePort"} and isinstance(value, int) and value >= 30000:
        return "<port>"
    return value


def _text(text: str) -> str:
    for pattern, replacement in PATTERNS:
        text = pattern.sub(replacement, text)
    return text
