"""A kind whose CRD is changed while the operator runs."""

import kopf
import pytest
from kopf.testing import Cluster, Operator

pytestmark = pytest.mark.kopf_embedded_only

SCHEMA = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}


def crd(subresources):
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "parts.example.org"},
        "spec": {
            "group": "example.org",
            "scope": "Namespaced",
            "names": {"plural": "parts", "kind": "Part"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": SCHEMA,
                    "subresources": subresources,
                }
            ],
        },
    }


@pytest.mark.timeout(120)
def test_the_status_is_written_after_its_subresource_was_added_or_removed():
    def handlers():
        @kopf.on.update("example.org", "v1", "parts")
        def change(spec, **_):
            return spec["size"]

    with Cluster() as cluster:
        cluster.apply(crd({}))
        with Operator(cluster, handlers) as operator:
            cluster.create({"apiVersion": "example.org/v1", "kind": "Part", "metadata": {"name": "one"}})
            for size, subresources in enumerate([{}, {"status": {}}, {}]):
                cluster.apply(crd(subresources))
                operator.wait_until_idle()
                cluster.patch("parts", "one", {"spec": {"size": size}})
                cluster.wait_for("parts", "one", {"status": {"change": size}})
