"""The module that operators of scenarios import: it records calls, and has the names of the run.

It does not depend on Kopf: it recognises values by their interfaces.
"""

import datetime
import json
import os
import sys
import threading
from collections.abc import Collection, Mapping

# The API group of the custom resources, a unique name for cluster-wide objects, the name of the operator.
GROUP = os.environ["DIFF_GROUP"]
TOKEN = os.environ["DIFF_TOKEN"]
OPERATOR = os.environ["DIFF_OPERATOR"]

_PLAIN_KEYS = {
    *("type", "reason", "activity", "param", "retry", "operation", "dryrun", "subresource"),
    *("name", "namespace", "started", "runtime", "old", "new", "diff", "memo", "warnings"),
}
_OTHER_KEYS = {
    *("body", "spec", "meta", "status", "labels", "annotations", "uid", "patch", "stopped", "event"),
    *("resource", "settings", "logger", "headers", "sslpeer", "userinfo"),
}
_RESOURCE_KEYS = [
    *("group", "version", "plural", "kind", "singular", "shortcuts", "categories", "subresources"),
    *("namespaced", "preferred"),
]
_VIEWS = ("spec", "status", "meta", "labels", "annotations")
_lock = threading.Lock()


def plain(value):
    """The value as JSON can contain it."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, datetime.datetime):
        return "<datetime>" if value.tzinfo is not None else "<naive datetime>"
    if isinstance(value, datetime.timedelta):
        return "<timedelta>"
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    if isinstance(value, Collection) and not isinstance(value, (bytes, bytearray)):
        return [plain(item) for item in value]
    return f"<{type(value).__name__}>"


def plain_index(index):
    """The keys of an index with their values, sorted."""
    pairs = [
        [plain(key), sorted(map(plain, store), key=lambda value: json.dumps(value, sort_keys=True))]
        for key, store in index.items()
    ]
    return sorted(pairs, key=lambda pair: json.dumps(pair[0]))


def plain_stopped(stopped):
    """The state of a stop flag, with the flags of its reason."""
    reason = getattr(stopped, "reason", None)
    flags = sorted(flag.name for flag in type(reason) if flag in reason) if reason else []
    return {"set": bool(stopped), "reason": flags}


def are_same(kwargs):
    """Whether the views of the body contain the same as the body."""
    body = kwargs["body"]
    meta = body.get("metadata") or {}
    expected = {"meta": meta, "labels": meta.get("labels"), "annotations": meta.get("annotations")}
    expected |= {key: body.get(key) for key in ("spec", "status")}
    return {key: plain(kwargs[key]) == plain(expected[key] or {}) for key in _VIEWS}


CONVERSIONS = {
    "uid": bool,
    "headers": bool,
    "body": plain,
    "patch": lambda patch: {"dict": plain(dict(patch)), "fns": len(getattr(patch, "fns", ()))},
    "stopped": plain_stopped,
    "resource": lambda resource: {key: plain(getattr(resource, key, None)) for key in _RESOURCE_KEYS},
    "event": lambda event: {"type": plain(event.get("type")), "keys": sorted(event)},
    "userinfo": lambda userinfo: {"username": plain(userinfo.get("username"))},
}


def trace(kwargs, fn=None, **extra):
    """Record a call of a handler: its keyword arguments, and the extra values."""
    call = {"fn": fn or sys._getframe(1).f_code.co_name, "kwargs": sorted(kwargs)}
    call |= {key: plain(value) for key, value in kwargs.items() if key in _PLAIN_KEYS}
    call |= {key: convert(kwargs[key]) for key, convert in CONVERSIONS.items() if key in kwargs}
    if "body" in kwargs:
        call["views"] = are_same(kwargs)
    indices = {
        key: plain_index(value)
        for key, value in kwargs.items()
        if key not in _PLAIN_KEYS | _OTHER_KEYS and isinstance(value, Mapping)
    }
    if indices:
        call["indices"] = indices
    if extra:
        call["extra"] = plain(extra)
    write(call)


def record(fn, **extra):
    """Record another observation: a module is loaded, a callback is called, a handler continues."""
    write({"fn": fn, "extra": plain(extra)})


def write(line):
    """Append a line to the file of the run."""
    if OPERATOR != "op":
        line["operator"] = OPERATOR
    line["at"] = datetime.datetime.now(datetime.UTC).timestamp()
    text = json.dumps(line, ensure_ascii=False) + "\n"
    with _lock, open(os.environ["TRACE_FILE"], "a", encoding="utf-8") as file:
        file.write(text)
