"""Requests about the CRDs of `crds`: about each CRD, and about its objects."""

from __future__ import annotations

import copy
import json
import zlib
from collections.abc import Iterator
from typing import Any

from .client import Client
from .corpus import APPLY, JSON_PATCH, MERGE, NAMESPACE, STRATEGIC, Request
from .crds import CASES, CrdCase
from .crds.variants import conflicts, crd_variants
from .discovery import Discovery, Schema
from .variants import variants

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
#: Numbers of sampled variants: of the creation of an object, of its update, of its CRD.
CREATES, UPDATES, CRD_VARIANTS = 12, 5, 8
Object = dict[str, Any]


class DeclaredSchemas:
    """The schemas of CRDs, in place of those that a server publishes."""

    def __init__(self, crd: Object) -> None:
        self._schema: Schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    def schema(self, manifest: Object) -> Schema:
        """Schema of an object of the CRD."""
        return self._schema

    def resolve(self, schema: Schema, group_version: str) -> Schema:
        """CRDs have no references."""
        return schema


def setup() -> Iterator[Request]:
    """Requests that prepare a server: the namespace and the CRDs."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    yield Request("setup", "namespace", "POST", "/api/v1/namespaces", namespace)
    for case in CASES:
        yield Request("CRDs: create", f"create {case.crd['metadata']['name']}", "POST", CRDS, case.crd)


def requests(client: Client) -> Iterator[Request]:
    """All requests after those of the set-up."""
    published = Discovery(client)
    for case in CASES:
        yield from _crd(case, published)
        for sample in case.samples:
            yield from _creates(case, sample)
        yield from _sequence(case)
    for i, case in enumerate(CASES):
        if i % 4 == 0:
            yield from _crd_updates(case)
        if i % 5 == 0:
            yield from _conflicts(case)


def _crd(case: CrdCase, published: Discovery) -> Iterator[Request]:
    name, spec = case.crd["metadata"]["name"], case.crd["spec"]
    group_path = f"/apis/{spec['group']}"
    yield Request("CRDs: create", f"{name}: get", "GET", f"{CRDS}/{name}", extra={"await": "conditions"})
    for version in spec["versions"]:
        yield Request("discovery", f"{name}: {version['name']}", "GET", f"{group_path}/{version['name']}")
    moved = copy.deepcopy(case.crd)
    moved["spec"]["group"] = "variants.example.com"
    moved["metadata"]["name"] = f"{spec['names']['plural']}.variants.example.com"
    own = sorted(crd_variants(moved), key=lambda it: zlib.crc32(it[0].encode()))[:CRD_VARIANTS]
    for label, changed in [*variants(moved, published, count=CRD_VARIANTS), *own]:
        yield Request("CRDs: variants", f"{name}: {label}", "POST", f"{CRDS}?dryRun=All", changed)


def _collection(case: CrdCase, version: str = "") -> str:
    spec = case.crd["spec"]
    scope = f"/namespaces/{NAMESPACE}" if spec["scope"] == "Namespaced" else ""
    version = version or spec["versions"][0]["name"]
    return f"/apis/{spec['group']}/{version}{scope}/{spec['names']['plural']}"


def _creates(case: CrdCase, sample: Object) -> Iterator[Request]:
    subject = f"{case.crd['spec']['names']['kind']} {sample['metadata']['name']}"
    path = f"{_collection(case)}?dryRun=All"
    yield Request("objects: create", f"{subject}: as it is", "POST", path, sample)
    for label, changed in variants(sample, DeclaredSchemas(case.crd), count=CREATES):
        yield Request("objects: create", f"{subject}: {label}", "POST", path, changed)
    if sample["metadata"]["name"] != "full":
        return
    unknown = {**sample, "unknown": 1, "spec": {**(sample.get("spec") or {}), "other": {"a": [None]}}}
    for validation in ("Strict", "Warn", "Ignore"):
        label = f"{subject}: unknown fields, {validation}"
        yield Request(
            "objects: field validation", label, "POST", f"{path}&fieldValidation={validation}", unknown
        )
    repeated = (
        json.dumps(sample)[:-1] + f', "kind": "{sample["kind"]}", "metadata": {{"name": "b", "name": "c"}}}}'
    )
    for validation in ("Strict", "Warn"):
        label = f"{subject}: repeated fields, {validation}"
        yield Request(
            "objects: field validation", label, "POST", f"{path}&fieldValidation={validation}", repeated
        )


class _Object:
    """Makes requests about one stored object."""

    def __init__(self, case: CrdCase) -> None:
        self.case = case
        self.created = copy.deepcopy(case.samples[0])
        self.created["metadata"]["name"] = "stored"
        self.collection = _collection(case)
        self.kind = case.crd["spec"]["names"]["kind"]

    def request(
        self,
        family: str,
        label: str,
        method: str,
        suffix: str = "",
        body: Any = None,
        type_: str = "",
        **extra: Any,
    ) -> Request:
        """A request to the object, or to a path below it."""
        path = f"{self.collection}/stored{suffix}"
        type_ = type_ or "application/json"
        return Request(f"objects: {family}", f"{self.kind}: {label}", method, path, body, type_, extra)

    def listed(self, family: str, label: str, suffix: str, **extra: Any) -> Request:
        """A request to the collection."""
        path = self.collection + suffix
        return Request(f"objects: {family}", f"{self.kind}: {label}", "GET", path, extra=extra)


def _sequence(case: CrdCase) -> Iterator[Request]:
    """Create, read, update, patch, apply, status and scale of one object."""
    it = _Object(case)
    path = f"{it.collection}?fieldManager=maker"
    yield Request("objects: round trip", f"{it.kind}: create", "POST", path, it.created)
    yield it.request("round trip", "create again", "GET")
    yield it.request("updates", "without a version", "PUT", "?fieldManager=maker", it.created)
    yield it.request("updates", "with the same", "PUT", "?fieldManager=maker", it.created, versioned=True)
    for label, changed in variants(it.created, DeclaredSchemas(case.crd), count=UPDATES):
        yield it.request("updates", label, "PUT", "?dryRun=All&fieldManager=second", changed, versioned=True)
    yield from _applies(it)
    yield from _patches(it)
    if "status" in (case.crd["spec"]["versions"][0].get("subresources") or {}):
        yield from _statuses(it)
    if "scale" in (case.crd["spec"]["versions"][0].get("subresources") or {}):
        yield from _scales(it)
    yield from _reads(it)
    yield it.request("round trip", "get at the end", "GET")
    yield it.request("round trip", "delete", "DELETE")
    yield it.request("round trip", "get after the deletion", "GET")


def _applies(it: _Object) -> Iterator[Request]:
    small = {key: it.created[key] for key in ("apiVersion", "kind")}
    small["metadata"] = {"name": "stored", "annotations": {"note": "a"}}
    labelled = {**it.created, "metadata": {"name": "stored", "labels": {"applied": "yes"}}}
    for label, query, body in [
        ("the whole", "fieldManager=applier&force=true", it.created),
        ("again", "fieldManager=applier&force=true", it.created),
        ("with labels", "fieldManager=applier", labelled),
        ("by a second manager", "fieldManager=other", labelled),
        ("a part", "fieldManager=third", small),
        ("less", "fieldManager=third", {**small, "metadata": {"name": "stored"}}),
        ("an unknown field", "fieldManager=third", {**small, "unknownField": 1}),
        ("without a manager", "", small),
    ]:
        yield it.request("apply", label, "PATCH", f"?{query}", body, APPLY)
    changed = variants(it.created, DeclaredSchemas(it.case.crd), start=34, count=6)
    for i, (label, body) in enumerate(changed):
        query = "?fieldManager=conflicting&dryRun=All" + ("&force=true" if i % 2 else "")
        yield it.request("apply", f"variant {label}", "PATCH", query, body, APPLY)


def _patches(it: _Object) -> Iterator[Request]:
    for label, body, type_ in [
        ("a label", {"metadata": {"labels": {"patched": "merge"}}}, MERGE),
        ("the same", {"metadata": {"labels": {"patched": "merge"}}}, MERGE),
        ("strategic", {"metadata": {"labels": {"patched": "strategic"}}}, STRATEGIC),
        ("JSON", [{"op": "add", "path": "/metadata/annotations", "value": {"json": "patch"}}], JSON_PATCH),
        ("failing test", [{"op": "test", "path": "/metadata/name", "value": "x"}], JSON_PATCH),
        ("absent path", [{"op": "remove", "path": "/nothing/here"}], JSON_PATCH),
        ("unknown field", {"spec": {"unknownField": {"a": 1}}}, MERGE),
        ("name", {"metadata": {"name": "other"}}, MERGE),
        ("not a patch", [1], MERGE),
    ]:
        yield it.request("patch", label, "PATCH", "?fieldManager=patcher", body, type_)
    spec = it.created.get("spec")
    for key, value in list(spec.items())[:4] if isinstance(spec, dict) else ():
        for label, new in [("removed", None), ("of a wrong type", 5 if not isinstance(value, int) else "x")]:
            yield it.request("patch", f"{key} {label}", "PATCH", "?dryRun=All", {"spec": {key: new}}, MERGE)
        if isinstance(value, list) and value:
            repeated = [{"op": "add", "path": f"/spec/{key}/-", "value": value[0]}]
            yield it.request("patch", f"{key} repeated", "PATCH", "?dryRun=All", repeated, JSON_PATCH)
            emptied = [{"op": "replace", "path": f"/spec/{key}", "value": []}]
            yield it.request("patch", f"{key} emptied", "PATCH", "?dryRun=All", emptied, JSON_PATCH)


def _statuses(it: _Object) -> Iterator[Request]:
    body = {"status": it.case.status}
    conditions = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    query = "/status?fieldManager=controller"
    yield it.request("status", "get", "GET", "/status")
    yield it.request("status", "conditions", "PATCH", query, conditions, MERGE)
    yield it.request("status", "the whole", "PATCH", query, body, MERGE)
    yield it.request("status", "the same again", "PATCH", query, body, MERGE)
    yield it.request("status", "unknown", "PATCH", query, {"status": {"nope": 1}}, MERGE)
    yield it.request(
        "status",
        "spec and metadata",
        "PATCH",
        query,
        {"spec": None, "metadata": {"labels": {"s": "t"}}},
        MERGE,
    )
    yield it.request("status", "wrong type", "PATCH", query, {"status": {"conditions": "x"}}, MERGE)
    applied = {key: it.created[key] for key in ("apiVersion", "kind")} | {"metadata": {"name": "stored"}}
    yield it.request(
        "status", "apply", "PATCH", "/status?fieldManager=s&force=true", {**applied, **body}, APPLY
    )
    whole = {**it.created, **body}
    for label, changed in _status_variants(whole, DeclaredSchemas(it.case.crd)):
        yield it.request("status", label, "PUT", "/status?dryRun=All", changed, versioned=True)


def _status_variants(whole: Object, schemas: DeclaredSchemas) -> Iterator[tuple[str, Object]]:
    # `variants` skips the status, so it gets another name.
    schema = schemas.schema(whole)["properties"]["status"]
    moved = DeclaredSchemas(
        {"spec": {"versions": [{"schema": {"openAPIV3Schema": {"properties": {"state": schema}}}}]}}
    )
    holder = {"apiVersion": "v1", "kind": "K", "metadata": {}, "state": whole["status"]}
    for label, changed in variants(holder, moved, count=5):
        yield label, {**whole, "status": changed.get("state")}


def _scales(it: _Object) -> Iterator[Request]:
    yield it.request("scale", "get", "GET", "/scale")
    yield it.request(
        "scale", "patch", "PATCH", "/scale?fieldManager=scaler", {"spec": {"replicas": 2}}, MERGE
    )
    yield it.request("scale", "too few", "PATCH", "/scale", {"spec": {"replicas": -1}}, MERGE)
    body = {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "stored"},
        "spec": {"replicas": 4},
    }
    yield it.request("scale", "put", "PUT", "/scale", body)
    yield it.request("scale", "get again", "GET", "/scale")


def _reads(it: _Object) -> Iterator[Request]:
    yield it.request("tables", "one", "GET", accept=TABLE)
    yield it.listed("tables", "list", "", accept=TABLE)
    yield it.listed("tables", "list with objects", "?includeObject=Object&limit=1", accept=TABLE)
    yield it.request("tables", "metadata", "GET", accept=PARTIAL)
    yield it.listed("lists", "list", "")
    yield it.listed("lists", "by name", "?fieldSelector=metadata.name%3Dstored")
    yield it.listed("lists", "by another field", "?fieldSelector=spec.x%3Dy")
    yield it.listed("lists", "by label", "?labelSelector=patched%21%3Dmerge")
    for field in it.case.crd["spec"]["versions"][0].get("selectableFields", ()):
        value: Any = it.created
        for step in field["jsonPath"].strip(".").split("."):
            value = value.get(step, "") if isinstance(value, dict) else ""
        for sign in ("%3D", "%21%3D"):
            query = f"?fieldSelector={field['jsonPath'].strip('.')}{sign}{value}"
            yield it.listed("lists", f"by {field['jsonPath']} {sign}", query)
    for version in it.case.crd["spec"]["versions"][1:]:
        path = f"{_collection(it.case, version['name'])}/stored"
        yield Request("objects: versions", f"{it.kind}: {version['name']}", "GET", path)
        body = {"metadata": {"labels": {"version": version["name"]}}}
        yield Request("objects: versions", f"{it.kind}: patch {version['name']}", "PATCH", path, body, MERGE)


def _crd_updates(case: CrdCase) -> Iterator[Request]:
    """The CRD changes while an object exists, which may become invalid."""
    it = _Object(case)
    name = case.crd["metadata"]["name"]
    schema = case.crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    root = "/spec/versions/0"

    def change(label: str, *operations: tuple[str, Any]) -> Request:
        patch = [{"op": "add", "path": path, "value": value} for path, value in operations]
        return Request("CRDs: updates", f"{name}: {label}", "PATCH", f"{CRDS}/{name}", patch, JSON_PATCH)

    def column(title: str) -> tuple[str, Any]:
        return f"{root}/additionalPrinterColumns", [{"name": title, "type": "string", "jsonPath": ".kind"}]

    properties = f"{root}/schema/openAPIV3Schema/properties"
    yield Request("objects: after CRD updates", f"{it.kind}: create", "POST", it.collection, it.created)
    yield change(
        "a property with a default",
        (
            f"{properties}/added",
            {"type": "object", "default": {"a": 1}, "properties": {"a": {"type": "integer"}}},
        ),
        column("One"),
    )
    family = "after CRD updates"
    yield it.listed(family, "columns", "", accept=TABLE, until="One")
    yield it.request(family, "with the default", "GET")
    yield it.request(family, "patched", "PATCH", "?fieldManager=late", {"added": {"a": 2, "b": 3}}, MERGE)
    spec = schema["properties"].get("spec", {}).get("properties", {})
    texts = [
        k
        for k, v in spec.items()
        if v.get("type") == "string" and "enum" not in v and k in it.created["spec"]
    ]
    if texts:
        at = f"{properties}/spec/properties/{texts[0]}"
        yield change("a value that is not valid any more", (f"{at}/maxLength", 1), column("Two"))
        yield it.listed(family, "columns again", "", accept=TABLE, until="Two")
        yield it.request(
            family, "a label of the invalid object", "PATCH", "", {"metadata": {"labels": {"x": "y"}}}, MERGE
        )
        yield it.request(family, "another invalid value", "PATCH", "", {"spec": {texts[0]: "longer"}}, MERGE)
        yield change("a required property", (f"{properties}/spec/required", ["absent"]), column("Three"))
        yield it.listed(family, "columns at last", "", accept=TABLE, until="Three")
        yield it.request(
            family,
            "a label of the incomplete object",
            "PATCH",
            "",
            {"metadata": {"labels": {"x": "z"}}},
            MERGE,
        )
    yield Request("objects: after CRD updates", f"{it.kind}: delete", "DELETE", f"{it.collection}/stored")
    for label, path, value in [
        ("no versions", "/spec/versions", []),
        ("another group", "/spec/group", "other.example.com"),
        (
            "another scope",
            "/spec/scope",
            "Cluster" if case.crd["spec"]["scope"] == "Namespaced" else "Namespaced",
        ),
        ("another plural", "/spec/names/plural", "others"),
        ("not stored", f"{root}/storage", False),
        ("not served", f"{root}/served", False),
        ("webhook", "/spec/conversion", {"strategy": "Webhook"}),
        ("preserve", "/spec/preserveUnknownFields", True),
    ]:
        body = [{"op": "add", "path": path, "value": value}]
        yield Request(
            "CRDs: updates", f"{name}: {label}", "PATCH", f"{CRDS}/{name}?dryRun=All", body, JSON_PATCH
        )


def _conflicts(case: CrdCase) -> Iterator[Request]:
    """Other CRDs of the group take names of the CRD."""
    for label, other in conflicts(case.crd):
        name = other["metadata"]["name"]
        label = f"{case.crd['metadata']['name']}: {label}"
        yield Request("CRDs: name conflicts", f"{label}: create", "POST", CRDS, other)
        path = f"{CRDS}/{name}"
        yield Request("CRDs: name conflicts", f"{label}: get", "GET", path, extra={"await": "conditions"})
        yield Request("CRDs: name conflicts", f"{label}: delete", "DELETE", path)
        yield Request(
            "CRDs: name conflicts", f"{label}: get deleted", "GET", path, extra={"await": "absence"}
        )
