"""Replicas whose webhook servers share a certificate by a Secret, and those that do not."""

import asyncio
import base64
import json
import ssl
import threading
import time
import urllib.request

import kopf
import pytest
from kopf.testing import Cluster

from tests.support.accounts import grant, write_kubeconfig

pytestmark = pytest.mark.kopf_embedded_only

LIMIT = 120.0
CONFIGURATION = ("validatingwebhookconfigurations", "ours.example.com")
HOST = "ours.default.svc"
LARGE = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"size": "large"}}


class RecordingServer(kopf.WebhookServer):
    """Keeps the configurations that it yields."""

    def __init__(self, **options):
        super().__init__(addr="127.0.0.1", extra_sans=[HOST], file_check_interval=0.05, **options)
        self.configs = []

    async def __call__(self, fn):
        async for config in super().__call__(fn):
            self.configs.append(config)
            yield config

    @property
    def served(self):
        """The certificate that clients get."""
        port = int(self.configs[-1]["url"].rpartition(":")[2])
        return ssl.get_server_certificate(("127.0.0.1", port), timeout=LIMIT)


def handlers():
    @kopf.on.validate("configmaps")
    def check(body, **_):
        if body.get("data", {}).get("size") == "large":
            raise kopf.AdmissionError("too large")


def settings_for(server):
    settings = kopf.OperatorSettings()
    settings.leadership.enabled = True
    settings.leadership.name = "ours"
    settings.leadership.namespace = "default"
    settings.admission.server = server
    settings.admission.managed = CONFIGURATION[1]
    return settings


def wait_until(condition):
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.02)


def review(server, bundle):
    """Send a review as the API server does, which trusts the bundle; the response."""
    context = ssl.create_default_context(cadata=base64.b64decode(bundle).decode())
    # As in Go, a certificate in the bundle is trusted itself.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    request = {
        "uid": "1",
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "name": "x",
        "namespace": "default",
        "operation": "CREATE",
        "userInfo": {"username": "me", "uid": "me", "groups": []},
        "dryRun": False,
        "object": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "x", "namespace": "default"},
        },
        "oldObject": None,
    }
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    url = f"{server.configs[-1]['url']}/check"
    call = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(call, timeout=LIMIT, context=context) as response:
        return json.load(response)["response"]


def test_all_replicas_serve_the_certificate_that_the_api_server_trusts(kopf_cluster, kopf_operator):
    servers = [RecordingServer(secret="default/ours") for _ in range(2)]
    for server in servers:
        kopf_operator(handlers, settings=settings_for(server))
    wait_until(lambda: all(server.configs for server in servers))
    wait_until(lambda: servers[0].served == servers[1].served)
    secret = kopf_cluster.get("secrets", "ours")
    assert secret["type"] == "kubernetes.io/tls"
    bundle = secret["data"]["ca.crt"]

    def is_published(body):
        return [webhook["clientConfig"]["caBundle"] for webhook in body.get("webhooks") or ()] == [bundle]

    kopf_cluster.wait_for(*CONFIGURATION, is_published)
    for server in servers:
        assert review(server, bundle)["allowed"] is True
    with pytest.raises(kopf.testing.ApiError, match="too large"):
        kopf_cluster.create(LARGE)


@pytest.mark.parametrize("has_context", [False, True])
def test_a_renewal_is_trusted_before_it_is_served(kopf_cluster, kopf_operator, has_context):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if has_context else None
    server = RecordingServer(secret="default/ours", context=context)
    kopf_operator(handlers, settings=settings_for(server))
    wait_until(lambda: server.configs and kopf_cluster.find("secrets", "ours"))
    first, bundle = server.served, kopf_cluster.get("secrets", "ours")["data"]["ca.crt"]
    kopf_cluster.delete("secrets", "ours")
    wait_until(lambda: len(server.configs) > 1)
    assert server.served == first
    both = server.configs[-1]["caBundle"]
    assert both != bundle and review(server, both)["allowed"] and review(server, bundle)["allowed"]
    # As if it was announced long ago.
    stepped = {"kopf.dev/certificate-renewal-step": "2026-01-01T00:00:00+00:00"}
    kopf_cluster.patch("secrets", "ours", {"metadata": {"annotations": stepped}})
    wait_until(lambda: server.served != first)
    assert review(server, both)["allowed"] is True
    with pytest.raises(kopf.testing.ApiError, match="too large"):
        kopf_cluster.create(LARGE)
    assert "next.key" not in kopf_cluster.get("secrets", "ours")["data"]


def test_replicas_with_an_own_certificate_for_each_are_warned_of(kopf_cluster, kopf_operator, caplog):
    server = RecordingServer()
    kopf_operator(handlers, settings=settings_for(server))
    wait_until(lambda: server.configs)
    text = (
        "Each replica has its own certificate, and the API server trusts only one of them: pass secret='NAME'"
    )
    assert text in caplog.text


def test_a_single_replica_is_not_warned_of(kopf_cluster, kopf_operator, caplog):
    server = RecordingServer()
    settings = settings_for(server)
    settings.leadership.enabled = False
    kopf_operator(handlers, settings=settings)
    wait_until(lambda: server.configs)
    assert "Each replica" not in caplog.text


def test_an_operator_without_permissions_for_the_secret_ends_with_the_missing_rule(tmp_path, monkeypatch):
    with Cluster("embedded", access=True) as cluster:
        reading = {"apiGroups": ["*"], "resources": ["configmaps"], "verbs": ["list", "watch"]}
        grant(cluster, [reading])
        write_kubeconfig(cluster, tmp_path / "config")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(kopf.login_with_kubeconfig)
        kopf.on.validate("configmaps", registry=registry)(lambda **_: None)
        settings = kopf.OperatorSettings()
        settings.admission.server = RecordingServer(secret="default/ours")
        options = {"registry": registry, "settings": settings, "clusterwide": True, "standalone": True}
        with pytest.raises(Exception, match="no permission to get the Secret default/ours") as raised:
            asyncio.run(asyncio.wait_for(kopf.operator(**options), LIMIT))
        rule = "resources: [secrets], resourceNames: [ours], verbs: [get, patch]"
        assert rule in str(raised.value)
        assert cluster.find("secrets", "ours") is None
