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


@pytest.mark.timeout(120)
def test_objects_of_a_deleted_crd_are_handled_until_they_are_gone():
    attempts = []

    def handlers():
        @kopf.on.delete("example.org", "v1", "parts")
        def delete(retry, **_):
            attempts.append(retry)
            if retry == 0:
                raise kopf.TemporaryError("Not yet.", delay=60)

    with Cluster() as cluster:
        cluster.freeze()
        cluster.apply(crd({}))
        with Operator(cluster, handlers):
            cluster.create({"apiVersion": "example.org/v1", "kind": "Part", "metadata": {"name": "one"}})
            cluster.advance(1)
            cluster.delete("customresourcedefinitions", "parts.example.org")
            # Meanwhile, the group is scanned: its resource offers no patches any more.
            cluster.advance(50)
            assert attempts == [0]
            cluster.advance(20)
            assert attempts == [0, 1]
            cluster.wait_until_gone("customresourcedefinitions", "parts.example.org")
