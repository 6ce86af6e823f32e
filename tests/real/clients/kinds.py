"""The kinds and the objects of the flows."""

from typing import Any, NamedTuple


class Kind(NamedTuple):
    """A kind, with the path of its objects."""

    group: str
    version: str
    name: str
    plural: str
    is_namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def object(self, name: str, labels: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
        """A manifest."""
        metadata = {"name": name, **({"labels": labels} if labels else {})}
        return {"apiVersion": self.api_version, "kind": self.name, "metadata": metadata, **fields}


NAMESPACES = Kind("", "v1", "Namespace", "namespaces", False)
CONFIG_MAPS = Kind("", "v1", "ConfigMap", "configmaps")
PODS = Kind("", "v1", "Pod", "pods")
SECRETS = Kind("", "v1", "Secret", "secrets")
SERVICES = Kind("", "v1", "Service", "services")
DEPLOYMENTS = Kind("apps", "v1", "Deployment", "deployments")
CRDS = Kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False)

SPEC = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 10},
        "colour": {"type": "string", "enum": ["red", "green"], "default": "red"},
        "replicas": {"type": "integer"},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "count": {"type": "integer"}},
            },
        },
    },
    "x-kubernetes-validations": [
        {"rule": "self.colour == 'red' || self.size > 1", "message": "green gadgets are larger than 1"}
    ],
}


def gadgets(flow: str) -> Kind:
    """The custom kind of a flow: the server can have those of other flows."""
    return Kind(f"{flow}.flows.testing.kopf.dev", "v1", "Gadget", "gadgets")


def crd(kind: Kind) -> dict[str, Any]:
    """The CRD of gadgets: with a schema, both subresources, columns and a selectable field."""
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC, "status": status}}},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
        "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
        "selectableFields": [{"jsonPath": ".spec.colour"}],
    }
    names = {"plural": kind.plural, "singular": "gadget", "kind": kind.name, "listKind": "GadgetList"}
    spec = {"group": kind.group, "scope": "Namespaced", "names": names, "versions": [version]}
    return CRDS.object(f"{kind.plural}.{kind.group}", spec=spec)


def deployment(name: str, labels: dict[str, str], selected: dict[str, str]) -> dict[str, Any]:
    """A deployment whose pods have the labels."""
    containers = [{"name": "main", "image": "nginx:1"}, {"name": "side", "image": "busybox:1"}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    spec = {"replicas": 0, "selector": {"matchLabels": selected}, "template": template}
    return DEPLOYMENTS.object(name, spec=spec)
