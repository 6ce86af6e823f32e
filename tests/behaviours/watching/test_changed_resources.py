"""A kind whose CRD is changed while the operator runs."""

import kopf
import pytest
from kopf.testing import Cluster, Operator

pytestmark = pytest.mark.kopf_embedded_only

SCHEMA = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}


def crd(subresources, scope="Namespaced"):
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "parts.example.org"},
        "spec": {
            "group": "example.org",
            "scope": scope,
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


@pytest.mark.timeout(120)
def test_a_kind_is_handled_after_its_crd_was_created_again_with_another_scope():
    calls, stops = [], []

    def handlers():
        @kopf.on.create("example.org", "v1", "parts")
        @kopf.on.update("example.org", "v1", "parts")
        def handle(name, namespace, spec, **_):
            calls.append((name, namespace, spec.get("size")))
            return spec.get("size")

        @kopf.daemon("example.org", "v1", "parts")
        async def follow(name, namespace, stopped, **_):
            await stopped.wait()
            stops.append((name, namespace))

    with Cluster() as cluster, Operator(cluster, handlers) as operator:
        for scope, namespace in [("Namespaced", "default"), ("Cluster", None), ("Namespaced", "default")]:
            cluster.apply(crd({"status": {}}, scope))
            part = {"apiVersion": "example.org/v1", "kind": "Part", "metadata": {"name": "one"}}
            cluster.create(part | {"spec": {"size": 1}})
            cluster.wait_for("parts", "one", {"status": {"handle": 1}})
            cluster.patch("parts", "one", {"spec": {"size": 2}})
            cluster.wait_for("parts", "one", {"status": {"handle": 2}})
            assert calls[-2:] == [("one", namespace, 1), ("one", namespace, 2)]
            cluster.delete("customresourcedefinitions", "parts.example.org")
            cluster.wait_until_gone("customresourcedefinitions", "parts.example.org")
        operator.wait_until_idle()
    assert len(calls) == 6
    assert stops == [("one", "default"), ("one", None), ("one", "default")]
