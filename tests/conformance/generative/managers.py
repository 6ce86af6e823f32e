"""Sequences of writes by several field managers: upgrades from client-side apply, many managers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .corpus import APPLY, JSON_PATCH, MERGE, NAMESPACE, Request

MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
Object = dict[str, Any]


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


def requests() -> Iterator[Request]:
    """All requests after those of the set-up."""
    yield from _upgrades()
    yield from _many()


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


def _request(label: str, method: str, path: str, *body: Any) -> Request:
    family = "managers: many" if " managers: " in label else "managers: upgrades"
    return Request(family, label, method, path, *body)
