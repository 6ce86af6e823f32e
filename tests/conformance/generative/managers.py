"""Sequences of writes by several field managers: upgrades, many managers, applies of fewer fields."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .corpus import APPLY, JSON_PATCH, MERGE, NAMESPACE, Request

MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
THINGS = f"/apis/managers.example.com/v1/namespaces/{NAMESPACE}/things"
ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
Object = dict[str, Any]

_PAIR: Object = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
_ITEM: Object = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "pair": _PAIR},
}
_SPEC: Object = {
    "size": {"type": "integer"},
    "pair": _PAIR,
    "nullable": {**_PAIR, "nullable": True},
    "outer": {"type": "object", "properties": {"pair": _PAIR}},
    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    "whole": {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "x-kubernetes-map-type": "atomic",
    },
    "list": {"type": "array", "items": {"type": "integer"}},
    "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
    "items": {
        "type": "array",
        "items": _ITEM,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    },
}
CRD: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.managers.example.com"},
    "spec": {
        "group": "managers.example.com",
        "scope": "Namespaced",
        "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": _SPEC},
                            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}
_PAIRS = {"pair": {"a": 1, "b": 2}}
# The first configuration, the second one, and that of another manager in between.
PRUNED: dict[str, tuple[Object, Object, Object | None]] = {
    "all": ({"spec": {"size": 1}}, {}, None),
    "all but the map": ({"spec": {"size": 1}}, {"spec": {}}, None),
    "one of two": ({"spec": {"size": 1, **_PAIRS}}, {"spec": {"size": 1}}, None),
    "an inner map": ({"spec": {**_PAIRS}}, {}, None),
    "an inner map and a field": ({"spec": {"size": 1, **_PAIRS}}, {}, None),
    "two levels": ({"spec": {"outer": _PAIRS}}, {}, None),
    "a nullable map": ({"spec": {"size": 1, "nullable": {"a": 1}}}, {"spec": {"size": 1}}, None),
    "a map with keys": ({"spec": {"labels": {"x": "y"}}}, {}, None),
    "a whole map": ({"spec": {"whole": {"x": "y"}}}, {}, None),
    "a list": ({"spec": {"list": [1]}}, {}, None),
    "a set": ({"spec": {"set": ["x"]}}, {}, None),
    "one of a set": ({"spec": {"set": ["x", "y"]}}, {"spec": {"set": ["y"]}}, None),
    "items": ({"spec": {"items": [{"name": "x"}]}}, {}, None),
    "a field of an item": (
        {"spec": {"items": [{"name": "x", **_PAIRS}]}},
        {"spec": {"items": [{"name": "x"}]}},
        None,
    ),
    "unknown fields": ({"free": {"x": {"y": 1}}}, {}, None),
    "the last unknown field": ({"free": {"x": {"y": 1}, "z": 2}}, {"free": {"z": 2}}, None),
    "labels": ({"metadata": {"labels": {"x": "y"}, "annotations": {"x": "y"}}}, {}, None),
    "a map that another manager owns": ({"spec": {"size": 1}}, {}, {"spec": {}}),
    "a map with the field of another manager": ({"spec": {"size": 1}}, {}, {"spec": {"labels": {"x": "y"}}}),
    "the fields of another manager": ({"spec": _PAIRS}, {}, {"spec": {"pair": {"a": 1}}}),
    "an empty inner map of another manager": ({"spec": _PAIRS}, {}, {"spec": {"pair": {}}}),
    "an empty list of another manager": ({"spec": {"set": ["x"]}}, {}, {"spec": {"set": []}}),
}


def config_map(name: str, data: Object, annotations: Object | None = None) -> Object:
    """A config map."""
    metadata: Object = {"name": name}
    if annotations is not None:
        metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def with_last_applied(manifest: Object, last: Any = None) -> Object:
    """The manifest as `kubectl apply` sends it."""
    text = last if isinstance(last, str) else json.dumps(last or manifest)
    annotations = {**manifest["metadata"].get("annotations", {}), ANNOTATION: text}
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": annotations}}


def setup() -> Iterator[Request]:
    """Requests that prepare a server."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    yield Request("setup", "namespace", "POST", "/api/v1/namespaces", namespace)
    yield Request("setup", "things", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CRD)


def requests() -> Iterator[Request]:
    """All requests after those of the set-up."""
    yield from _upgrades()
    yield from _many()
    yield from _pruned()


def _upgrades() -> Iterator[Request]:
    data = {"a": "1", "b": "2"}
    plain = config_map("m", data, {"note": "x"})
    for i, (title, last) in enumerate(
        {
            "the same": None,
            "another value": config_map("m", {"a": "1", "b": "other"}),
            "fewer fields": config_map("m", {"a": "1"}),
            "more fields": config_map("m", {**data, "c": "3"}),
            "another version": {**config_map("m", data), "apiVersion": "v2"},
            "no version": {"data": data},
            "not JSON": "{",
            "empty": "",
            "a list": "[]",
        }.items()
    ):
        name = f"upgraded-{i}"
        created = with_last_applied({**plain, "metadata": {**plain["metadata"], "name": name}}, last)
        client = "kubectl-client-side-apply"
        yield _request(f"{title}: create", "POST", f"{MAPS}?fieldManager={client}", created)
        same, changed = config_map(name, data), config_map(name, {"a": "1", "b": "3"})
        noted = config_map(name, {"b": "2"}, {"note": "y", ANNOTATION: "z"})
        for label, manager, body in [
            ("the same by another manager", "other", same),
            ("changed by another manager", "other", changed),
            ("changed", "kubectl", changed),
            ("the same", "kubectl", same),
            ("annotations", "kubectl", noted),
        ]:
            dry = f"{MAPS}/{name}?dryRun=All&fieldManager={manager}"
            yield _request(f"{title}: {label}, dry", "PATCH", dry, body, APPLY)
        query = "?fieldManager=kubectl"
        yield _request(f"{title}: changed", "PATCH", f"{MAPS}/{name}{query}", changed, APPLY)
        yield _request(f"{title}: changed back", "PATCH", f"{MAPS}/{name}{query}", same, APPLY)
        by_second = {"data": {"b": "9"}}
        yield _request(f"{title}: second", "PATCH", f"{MAPS}/{name}?fieldManager=second", by_second, MERGE)
        yield _request(f"{title}: conflict", "PATCH", f"{MAPS}/{name}{query}", changed, APPLY)
        yield _request(f"{title}: forced", "PATCH", f"{MAPS}/{name}{query}&force=true", changed, APPLY)
        yield _request(
            f"{title}: less", "PATCH", f"{MAPS}/{name}{query}", config_map(name, {"b": "3"}), APPLY
        )
        # The entry of client-side apply becomes one of server-side apply, as client libraries do it.
        moved = [{"op": "replace", "path": "/metadata/managedFields/0/operation", "value": "Apply"}]
        yield _request(f"{title}: moved entry", "PATCH", f"{MAPS}/{name}?fieldManager=x", moved, JSON_PATCH)
        yield _request(f"{title}: get", "GET", f"{MAPS}/{name}")
    created = with_last_applied(config_map("made", data))
    yield _request("annotated: apply new", "PATCH", f"{MAPS}/made?fieldManager=kubectl", created, APPLY)
    yield _request("annotated: get", "GET", f"{MAPS}/made")


def _many() -> Iterator[Request]:
    for count in (9, 10, 11, 14):
        name = f"many-{count}"
        created = config_map(name, {"k0": "0"})
        yield _request(f"{count} managers: create", "POST", f"{MAPS}?fieldManager=m00", created)
        for i in range(1, count + 1):
            path, data = f"{MAPS}/{name}?fieldManager=m{i:02}", {"data": {f"k{i}": str(i)}}
            yield _request(f"{count} managers: {i}", "PATCH", path, data, MERGE)
        body = config_map(name, {"k1": "1", "x": "y"})
        path = f"{MAPS}/{name}?fieldManager=applier&force=true"
        yield _request(f"{count} managers: apply", "PATCH", path, body, APPLY)
        path = f"{MAPS}/{name}?fieldManager=m01"
        yield _request(f"{count} managers: first again", "PATCH", path, {"data": {"k2": "z"}}, MERGE)


def _pruned() -> Iterator[Request]:
    """Applies of fewer fields than before."""
    for number, (title, (first, then, other)) in enumerate(PRUNED.items()):
        path = f"{THINGS}/pruned-{number}?fieldManager="
        for label, manager, fields in [
            ("first", "one", first),
            ("by another", "two", other),
            ("then", "one", then),
        ]:
            if fields is not None:
                body = {"apiVersion": "managers.example.com/v1", "kind": "Thing", **fields}
                body["metadata"] = {"name": f"pruned-{number}", **body.get("metadata", {})}
                yield _request(f"pruned {title}: {label}", "PATCH", f"{path}{manager}", body, APPLY)
        yield _request(f"pruned {title}: get", "GET", f"{THINGS}/pruned-{number}")


def _request(label: str, method: str, path: str, *body: Any) -> Request:
    family = "managers: upgrades"
    if " managers: " in label:
        family = "managers: many"
    elif label.startswith("pruned "):
        family = "managers: fewer fields"
    return Request(family, label, method, path, *body)
