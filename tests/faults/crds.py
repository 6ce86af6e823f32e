"""The CRDs of the operators in this folder, and the keys of Kopf's annotations."""

from typing import Any

PREFIX = "kopf.zalando.org/"
LAST = PREFIX + "last-handled-configuration"
ANYTHING = {"x-kubernetes-preserve-unknown-fields": True}


def make_crd(group: str, kind: str, more: dict[str, Any], *, status: bool = False) -> dict[str, Any]:
    """A kind with this schema of its objects."""
    plural, singular = f"{kind.lower()}s", kind.lower()
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", **more}},
        **({"subresources": {"status": {}}} if status else {}),
    }
    names = {"plural": plural, "singular": singular, "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }
