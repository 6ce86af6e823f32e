"""One kind that is handled in two versions: each handler gets complete bodies of its version."""

import threading
import time

import kopf
import pytest
from kopf.testing import Cluster, Operator

pytestmark = pytest.mark.kopf_embedded_only

SCHEMA = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
VERSIONS = [
    {"name": name, "served": True, "storage": name == "v1", "schema": SCHEMA} for name in ("v1", "v1beta1")
]
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "parts.example.org"},
    "spec": {
        "group": "example.org",
        "scope": "Namespaced",
        "names": {"plural": "parts", "kind": "Part"},
        "versions": VERSIONS,
    },
}


@pytest.mark.timeout(60)
def test_each_version_has_its_own_bodies():
    calls = []

    def handlers():
        @kopf.on.create("example.org", "v1", "parts")
        @kopf.on.update("example.org", "v1", "parts")
        def change(body, spec, new, **_):
            calls.append((body["apiVersion"], dict(spec), new["spec"]))

        @kopf.daemon("example.org", "v1beta1", "parts")
        async def daemon(stopped, **_):
            await stopped.wait()

    with Cluster() as cluster:
        cluster.apply(CRD)
        with Operator(cluster, handlers) as operator:
            operator.wait_until_idle()

            def handled(name, size):
                # Kopf adds the finalizer for one version and removes it for the other one: it is never idle.
                essence = f'{{"spec":{{"size":{size}}}}}\n'
                annotations = {"kopf.zalando.org/last-handled-configuration": essence}
                cluster.wait_for("parts", name, {"metadata": {"annotations": annotations}})

            for name in ("one", "two"):
                body = {"metadata": {"name": name}, "spec": {"size": 1}}
                cluster.create({"apiVersion": "example.org/v1", "kind": "Part", **body})
                handled(name, 1)
                cluster.patch("parts", name, {"spec": {"size": 2}})
                handled(name, 2)
    expected = [("example.org/v1", {"size": size}, {"size": size}) for size in (1, 2, 1, 2)]
    assert calls == expected


@pytest.mark.timeout(60)
def test_only_one_version_with_daemons_adds_and_removes_the_finalizer_in_turn():
    """As in Kopf 1.45. It ends if the handlers of both versions need the finalizer, or neither."""

    def handlers(needs_it):
        def declare():
            @kopf.on.create("example.org", "v1", "parts")
            def create(**_):
                pass

            @kopf.daemon("example.org", "v1beta1", "parts")
            async def daemon(stopped, **_):
                await stopped.wait()

            if needs_it:
                kopf.on.delete("example.org", "v1", "parts")(create)

        return declare

    def patches_in_a_second(cluster, needs_it):
        with Operator(cluster, handlers(needs_it)):
            body = {"metadata": {"name": f"needs-{needs_it}".lower()}, "spec": {"size": 1}}
            cluster.create({"apiVersion": "example.org/v1", "kind": "Part", **body})
            annotations = {"kopf.zalando.org/last-handled-configuration": '{"spec":{"size":1}}\n'}
            cluster.wait_for("parts", body["metadata"]["name"], {"metadata": {"annotations": annotations}})
            cluster.clear_requests()
            start = time.monotonic()
            count = 0
            while count < 10 and time.monotonic() - start < 1:
                threading.Event().wait(0.02)
                count = sum(it.method == "PATCH" and "/parts/" in it.path for it in cluster.requests)
            return count

    with Cluster() as cluster:
        cluster.apply(CRD)
        assert patches_in_a_second(cluster, True) <= 2
        cluster.delete("parts", "needs-true")
        cluster.patch("parts", "needs-true", {"metadata": {"finalizers": None}})
        assert patches_in_a_second(cluster, False) >= 10
