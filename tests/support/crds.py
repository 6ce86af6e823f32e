"""CRDs for tests."""

import json
from typing import Any

GROUP = "testing.kopf.dev"


def crd(
    plural: str,
    kind: str,
    *,
    group: str = GROUP,
    scope: str = "Namespaced",
    pruned: bool = False,
    subresource: bool = True,
) -> dict[str, Any]:
    """A CRD for tests. If it is pruned, its schema has little more than `spec.size`, and the server drops
    other fields."""
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    strict = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
            "status": {"type": "object", "properties": {"known": {"type": "string"}}},
        },
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": strict if pruned else free},
    }
    if subresource:
        version["subresources"] = {"status": {}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "versions": [version],
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
        },
    }


PEERINGS = json.dumps(
    crd("clusterkopfpeerings", "ClusterKopfPeering", group="kopf.dev", scope="Cluster", subresource=False)
)
"""The manifest of the cluster-scoped peering resource."""
