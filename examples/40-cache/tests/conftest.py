"""The fixture of the tests: a cluster with the CRD, in which the operator runs."""

import pathlib
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parents[1]
API = "/apis/cache.examples.kopf.dev/v1"


@pytest.fixture
def cluster(kopf_cluster, kopf_operator):
    """The operator runs, and the API server calls its webhooks."""
    kopf_cluster.apply(HERE / "deploy/base/crd.yaml")
    kopf_operator(HERE / "handlers.py")
    wait_for_webhooks(kopf_cluster)
    return kopf_cluster


def wait_for_webhooks(cluster):
    """API servers notice new webhooks after a moment: send dry runs until they do."""
    for plural in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
        name = "webhooks.cache.examples.kopf.dev"
        cluster.wait_for(plural, name, lambda it: it and it.get("webhooks"))
    path = f"{API}/namespaces/{cluster.namespace}/caches?dryRun=All"
    body = {"apiVersion": API.removeprefix("/apis/"), "kind": "Cache", "metadata": {"name": "x"}, "spec": {}}
    deadline = time.monotonic() + 30
    while "maxMemory" not in cluster.call("POST", path, body)["spec"]:
        assert time.monotonic() < deadline, "The API server does not call the webhooks."
