"""Parts of schemas that many CRDs have, and the builder of a CRD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .schemas import Schema, anything, f, int_or_string, mapping, quantity, sample_of, schema_of

SUFFIX = "style.example.com"
TIME = "2026-01-01T00:00:00Z"
NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


@dataclass(frozen=True)
class CrdCase:
    """A CRD and objects of it."""

    crd: dict[str, Any]
    samples: list[dict[str, Any]]
    #: Sample of the status, if there is one.
    status: Any = None


def define(
    group: str,
    kind: str,
    spec: Any,
    *,
    status: Any = None,
    columns: tuple[str, ...] = (),
    scope: str = "Namespaced",
    plural: str = "",
    version: str = "v1",
    samples: tuple[dict[str, Any], ...] = (),
    root: Schema | None = None,
    annotations: dict[str, str] | None = None,
    scale: tuple[str, ...] = (),
    selectable: tuple[str, ...] = (),
    other_versions: tuple[dict[str, Any], ...] = (),
    names: dict[str, Any] | None = None,
    top: dict[str, Any] | None = None,
) -> CrdCase:
    """A CRD. ``spec`` and ``status`` are annotated samples; ``columns`` are ``name type path [priority]``."""
    group = group if "." in group else f"{group}.{SUFFIX}"
    plural = plural or f"{kind.lower()}s"
    properties = {"apiVersion": "v1", "kind": "K", "metadata": f({}, type="object"), **(top or {})}
    if spec is not None:
        properties["spec!"] = spec
    if status is not None:
        properties["status"] = status
    schema = schema_of(properties)
    schema["properties"]["metadata"] = {"type": "object"}
    schema |= root or {}
    described: dict[str, Any] = {"name": version, "served": True, "storage": True}
    described["schema"] = {"openAPIV3Schema": schema}
    subresources: dict[str, Any] = {"status": {}} if status is not None else {}
    if scale:
        paths = ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
        subresources["scale"] = dict(zip(paths, scale, strict=False))
    if subresources:
        described["subresources"] = subresources
    if columns:
        described["additionalPrinterColumns"] = [_column(text) for text in columns]
    if selectable:
        described["selectableFields"] = [{"jsonPath": path} for path in selectable]
    versions = [described]
    for other in other_versions:
        versions.append({**described, "storage": False, **other})
    crd: dict[str, Any] = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "kind": kind, **(names or {})},
            "versions": versions,
        },
    }
    if annotations:
        crd["metadata"]["annotations"] = annotations
    return CrdCase(crd, _objects(f"{group}/{version}", kind, spec, top or {}, samples), sample_of(status))


def _objects(
    api_version: str, kind: str, spec: Any, top: dict[str, Any], samples: tuple[dict[str, Any], ...]
) -> list[dict[str, Any]]:
    def named(name: str, members: dict[str, Any]) -> dict[str, Any]:
        return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **members}

    full: dict[str, Any] = sample_of(top)
    minimal: dict[str, Any] = sample_of(top, minimal=True)
    if spec is not None:
        full["spec"], minimal["spec"] = sample_of(spec), sample_of(spec, minimal=True)
    objects = [named("full", full)]
    if minimal != full:
        objects.append(named("minimal", minimal))
    return objects + [named(f"sample{i}", members) for i, members in enumerate(samples)]


def _column(text: str) -> dict[str, Any]:
    name, kind, path, *rest = text.split(" ")
    column: dict[str, Any] = {"name": name.replace("_", " "), "jsonPath": path}
    kind, _, format_ = kind.partition("/")
    column["type"] = kind
    if format_:
        column["format"] = format_
    if rest:
        column["priority"] = int(rest[0])
    return column


AGE = "Age date .metadata.creationTimestamp"
READY = 'Ready string .status.conditions[?(@.type=="Ready")].status'
REASON = 'Reason string .status.conditions[?(@.type=="Ready")].reason 1'


def conditions(*, is_map: bool = True) -> Any:
    """Conditions as metav1.Condition, with its limits."""
    item = {
        "type!": f(
            "Ready",
            maxLength=316,
            pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        ),
        "status!": f("True", enum=["True", "False", "Unknown"]),
        "observedGeneration": f(1, format="int64", minimum=0),
        "lastTransitionTime!": f(TIME, format="date-time"),
        "reason!": f(
            "Done", maxLength=1024, minLength=1, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
        ),
        "message!": f("all good", maxLength=32768),
    }
    return f([item], keys=["type"]) if is_map else [item]


def status(**members: Any) -> Any:
    """A status with conditions and the observed generation."""
    return {"conditions": conditions(), "observedGeneration": f(1, format="int64"), **members}


def labels() -> Any:
    """A map of labels."""
    return mapping({"app": "web"})


def label_selector() -> Any:
    """metav1.LabelSelector."""
    expression = {"key!": "tier", "operator!": "In", "values": f(["a", "b"], list_type="atomic")}
    return f(
        {"matchExpressions": f([expression], list_type="atomic"), "matchLabels": labels()}, map_type="atomic"
    )


def secret_key(name: str = "credentials") -> Any:
    """A key of a secret."""
    return f({"name": f(name, default=""), "key!": "password", "optional": False}, map_type="atomic")


def object_ref(kind: str, **members: Any) -> Any:
    """A reference to an object with group and kind."""
    return {
        "group": f(
            "",
            maxLength=253,
            default="",
            pattern=r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        ),
        "kind": f(
            kind, maxLength=63, minLength=1, default=kind, pattern=r"^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$"
        ),
        "name!": f("target", maxLength=253, minLength=1),
        **members,
    }


def resources() -> Any:
    """corev1.ResourceRequirements."""
    pattern_map = f({"cpu": quantity("500m"), "memory": quantity("1Gi")}, is_map=True)
    return {
        "claims": f([{"name!": "gpu", "request": "one"}], keys=["name"]),
        "limits": pattern_map,
        "requests": pattern_map,
    }


def environment() -> Any:
    """Environment variables."""
    source = {
        "secretKeyRef": secret_key(),
        "fieldRef?": f({"apiVersion": "v1", "fieldPath!": "x"}, map_type="atomic"),
    }
    return f(
        [
            {"name!": "A", "value": "1", "valueFrom?": source},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ],
        keys=["name"],
    )


def container(name: str = "main") -> Any:
    """A container with its most used fields."""
    port = {
        "containerPort!": f(8080, format="int32"),
        "name": "http",
        "protocol": f("TCP", default="TCP"),
        "hostIP?": "127.0.0.1",
    }
    probe = {
        "httpGet": {"path": "/healthz", "port!": int_or_string("http"), "scheme?": "HTTP"},
        "periodSeconds": f(10, format="int32"),
        "terminationGracePeriodSeconds?": f(5, format="int64"),
    }
    return {
        "name!": name,
        "image": "registry.example.com/app:1",
        "args": f(["--verbose"], list_type="atomic"),
        "command?": f(["run"], list_type="atomic"),
        "env": environment(),
        "ports": f([port], keys=["containerPort", "protocol"]),
        "resources": resources(),
        "livenessProbe": probe,
        "imagePullPolicy?": "Always",
        "securityContext": {
            "runAsUser": f(1000, format="int64"),
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": f(["ALL"], list_type="atomic")},
        },
        "volumeMounts": f([{"mountPath!": "/data", "name!": "data", "readOnly": True}], keys=["mountPath"]),
    }


def toleration() -> Any:
    """corev1.Toleration."""
    return {
        "key": "dedicated",
        "operator": "Exists",
        "effect": "NoSchedule",
        "tolerationSeconds?": f(60, format="int64"),
    }


def pod_template() -> Any:
    """A template with a declared pod spec, and metadata that is not."""
    return {
        "metadata": anything({"labels": {"app": "web"}, "annotations": {"note": "x"}}),
        "spec": {
            "containers!": f([container()], keys=["name"]),
            "nodeSelector": f({"disk": "ssd"}, is_map=True, map_type="atomic"),
            "tolerations": f([toleration()], list_type="atomic"),
            "serviceAccountName": "runner",
            "terminationGracePeriodSeconds": f(30, format="int64"),
            "volumes": f(
                [
                    {
                        "name!": "data",
                        "emptyDir": {"medium": "Memory", "sizeLimit": quantity("1Gi")},
                        "secret?": {"secretName": "s", "defaultMode": f(420, format="int32")},
                    }
                ],
                keys=["name"],
            ),
        },
    }


def embedded(kind: str, sample: dict[str, Any], **keywords: Any) -> Any:
    """A complete object of another kind inside of an object."""
    return anything(
        {"apiVersion": "v1", "kind": kind, "metadata": {"name": "inner"}, **sample}, embedded=True, **keywords
    )


def claim_template() -> Any:
    """A template of a PersistentVolumeClaim, as an embedded resource with declared fields."""
    return f(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": anything({"name": "data", "labels": {"a": "b"}}),
            "spec": {
                "accessModes": f(["ReadWriteOnce"], list_type="atomic"),
                "resources": {"requests": f({"storage": quantity("10Gi")}, is_map=True)},
                "storageClassName": "fast",
                "volumeMode?": "Block",
            },
        },
        embedded=True,
    )
