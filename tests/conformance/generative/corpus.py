"""Requests of the corpus, in named families."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from .client import Client
from .discovery import Discovery, Resource
from .variants import variants

Manifest = dict[str, Any]
NAMESPACE = "conformance"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH, APPLY = "application/json-patch+json", "application/apply-patch+yaml"


@dataclass(frozen=True)
class Request:
    """A request; ``label`` is its variant."""

    family: str
    label: str
    method: str
    path: str
    body: Any = None
    type: str = "application/json"
    extra: dict[str, Any] = field(default_factory=dict)


def load(folders: list[Path]) -> list[Manifest]:
    """Manifests of all YAML files; CRDs come first."""
    found: list[Manifest] = []
    for folder in folders:
        for file in sorted(folder.glob("**/*.y*ml")):
            found.extend(d for d in yaml.safe_load_all(file.read_text()) if d)
    return sorted(found, key=lambda m: not is_crd(m))


def is_crd(manifest: Manifest) -> bool:
    """Whether a manifest is a CRD."""
    return bool(manifest["kind"] == "CustomResourceDefinition")


def _is_custom(manifest: Manifest, groups: set[str]) -> bool:
    return manifest["apiVersion"].partition("/")[0] in groups


def setup(manifests: list[Manifest]) -> Iterator[Request]:
    """Requests that prepare a server: the namespace and the CRDs."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    yield Request("setup", "namespace", "POST", "/api/v1/namespaces", namespace)
    collection = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for manifest in filter(is_crd, manifests):
        yield Request("setup", "CRD", "POST", collection, manifest)


def requests(manifests: list[Manifest], client: Client) -> Iterator[Request]:
    """All requests after those of the set-up. The server must have the CRDs."""
    discovery = Discovery(client)
    groups = {m["spec"]["group"] for m in manifests if is_crd(m)}
    for manifest in manifests:
        resource = discovery.resource(manifest)
        custom = _is_custom(manifest, groups)
        subject = f"{manifest['kind']} {manifest['metadata']['name']}"
        varied = _unserved(manifest) if is_crd(manifest) else manifest
        for label, changed in variants(varied, discovery):
            family = _family(manifest, custom)
            # Schemas have many similar fields: a sample is enough.
            if is_crd(manifest) and zlib.crc32(label.encode()) % 3:
                continue
            path = resource.collection(NAMESPACE) + "?dryRun=All"
            yield Request(family, f"{subject}: {label}", "POST", path, changed)
        if not is_crd(manifest):
            yield from _sequence(manifest, resource, subject, custom, discovery)


def _unserved(crd: Manifest) -> Manifest:
    """The CRD in another group, so that its names are free."""
    moved = copy.deepcopy(crd)
    moved["spec"]["group"] = "variants.example.com"
    moved["metadata"]["name"] = f"{moved['spec']['names']['plural']}.variants.example.com"
    return moved


def _family(manifest: Manifest, custom: bool) -> str:
    if custom:
        return "custom objects"
    group = manifest["apiVersion"].partition("/")[0]
    if manifest["kind"] in {"Pod", "PodTemplate", "ReplicationController"}:
        return "create pods"
    match group:
        case "v1":
            return "create core"
        case "apps" | "batch":
            return "create workloads"
        case "apiextensions.k8s.io":
            return "CRDs"
    return "create other groups"


def _sequence(
    manifest: Manifest, resource: Resource, subject: str, custom: bool, discovery: Discovery
) -> Iterator[Request]:
    """Create, read, update, patch, apply and status of one object."""
    kind = "custom" if custom else "built-in"
    collection = resource.collection(NAMESPACE)
    created = copy.deepcopy(manifest)
    created["metadata"]["name"] += "-stored"
    if resource.plural == "csidrivers":
        created["metadata"]["name"] = "stored." + manifest["metadata"]["name"]
    path = f"{collection}/{created['metadata']['name']}"

    def request(
        family: str, label: str, method: str, suffix: str = "", body: Any = None, content: str = ""
    ) -> Request:
        return Request(
            f"{family} {kind}",
            f"{subject}: {label}",
            method,
            path + suffix,
            body,
            content or "application/json",
        )

    yield Request(
        f"round trip {kind}", f"{subject}: create", "POST", f"{collection}?fieldManager=maker", created
    )
    yield request("round trip", "get", "GET")
    yield request("round trip", "update with the same", "PUT", "?fieldManager=maker", created)
    for label, changed in variants(created, discovery):
        # Most of these values were tried at the creation: a sample is enough.
        if zlib.crc32(label.encode()) % 5 == 0:
            yield request("update", f"update {label}", "PUT", "?dryRun=All&fieldManager=second", changed)
    yield from _applies(created, request)
    yield from _patches(created, request)
    if resource.has_status:
        yield from _statuses(request)
    yield request("round trip", "get at the end", "GET")
    # Finalizers must not hold the object.
    yield request("patch", "drop finalizers", "PATCH", "", {"metadata": {"finalizers": None}}, MERGE)
    yield request("round trip", "delete", "DELETE", "?gracePeriodSeconds=0")


def _applies(created: Manifest, request: Any) -> Iterator[Request]:
    family = "apply"
    labelled = copy.deepcopy(created)
    labelled["metadata"]["labels"] = {"applied": "yes"}
    small = {k: created[k] for k in ("apiVersion", "kind")}
    small["metadata"] = {"name": created["metadata"]["name"], "annotations": {"note": "a"}}
    yield request(family, "apply the whole", "PATCH", "?fieldManager=applier&force=true", created, APPLY)
    yield request(family, "apply again", "PATCH", "?fieldManager=applier&force=true", created, APPLY)
    yield request(family, "apply with labels", "PATCH", "?fieldManager=applier", labelled, APPLY)
    yield request(family, "second applier", "PATCH", "?fieldManager=other", labelled, APPLY)
    yield request(family, "second applier again", "PATCH", "?fieldManager=other", labelled, APPLY)
    yield request(family, "small apply", "PATCH", "?fieldManager=third", small, APPLY)
    yield request(
        family,
        "small apply gives up",
        "PATCH",
        "?fieldManager=third",
        {**small, "metadata": {"name": small["metadata"]["name"]}},
        APPLY,
    )
    yield request(
        family, "apply an unknown field", "PATCH", "?fieldManager=third", {**small, "unknownField": 1}, APPLY
    )


def _patches(created: Manifest, request: Any) -> Iterator[Request]:
    family = "patch"
    label = {"metadata": {"labels": {"patched": "merge"}}}
    yield request(family, "merge patch of a label", "PATCH", "?fieldManager=patcher", label, MERGE)
    yield request(family, "the same merge patch", "PATCH", "?fieldManager=patcher", label, MERGE)
    yield request(
        family,
        "strategic patch of a label",
        "PATCH",
        "?fieldManager=patcher2",
        {"metadata": {"labels": {"patched": "strategic"}}},
        STRATEGIC,
    )
    yield request(
        family,
        "JSON patch of an annotation",
        "PATCH",
        "?fieldManager=patcher3",
        [{"op": "add", "path": "/metadata/annotations", "value": {"json": "patch"}}],
        JSON_PATCH,
    )
    yield request(
        family,
        "failing test of a JSON patch",
        "PATCH",
        "",
        [{"op": "test", "path": "/metadata/name", "value": "x"}],
        JSON_PATCH,
    )
    yield request(
        family,
        "JSON patch of an absent path",
        "PATCH",
        "",
        [{"op": "remove", "path": "/nothing/here"}],
        JSON_PATCH,
    )
    for key, value in created.items():
        if key in {"apiVersion", "kind", "metadata"}:
            continue
        yield request(
            family,
            f"merge patch of {key} with the same",
            "PATCH",
            "?fieldManager=patcher",
            {key: value},
            MERGE,
        )
        yield request(
            family,
            f"strategic patch of {key} with the same",
            "PATCH",
            "?fieldManager=patcher",
            {key: value},
            STRATEGIC,
        )
        yield request(family, f"removal of {key}", "PATCH", "?dryRun=All", {key: None}, MERGE)
        yield request(family, f"{key} of a wrong type", "PATCH", "?dryRun=All", {key: 5}, MERGE)
        for inner, below in value.items() if isinstance(value, dict) else ():
            yield request(
                family, f"removal of {key}.{inner}", "PATCH", "?dryRun=All", {key: {inner: None}}, MERGE
            )
            yield request(
                family,
                f"strategic patch of {key}.{inner}",
                "PATCH",
                "?dryRun=All",
                {key: {inner: below}},
                STRATEGIC,
            )


def _statuses(request: Any) -> Iterator[Request]:
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Done",
        "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    family = "status"
    body = {"status": {"conditions": [condition]}}
    yield request(family, "get status", "GET", "/status")
    yield request(
        family, "merge patch of conditions", "PATCH", "/status?fieldManager=controller", body, MERGE
    )
    yield request(family, "the same again", "PATCH", "/status?fieldManager=controller", body, MERGE)
    yield request(
        family,
        "an unknown status field",
        "PATCH",
        "/status?fieldManager=controller",
        {"status": {"nope": 1}},
        MERGE,
    )
    yield request(family, "spec through status", "PATCH", "/status", {"spec": {"replicas": 7}}, MERGE)
    yield request(family, "a wrong type", "PATCH", "/status", {"status": {"conditions": "x"}}, MERGE)
    yield request(family, "removal", "PATCH", "/status", {"status": None}, MERGE)
