"""The readiness endpoint and the metrics of caches. Section 2.6."""

import re
import socket
import threading
import urllib.error
import urllib.request

import kopf
import pytest

from .conftest import wait_until

pytestmark = pytest.mark.kopf_embedded_only


@pytest.fixture
def fetch():
    """Requests a path of the operator's probes, which have a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"

    def request(path):
        try:
            with urllib.request.urlopen(endpoint + path, timeout=60) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except urllib.error.URLError:
            return 0, "the operator does not listen yet"

    request.endpoint = endpoint
    return request


@pytest.fixture
def serve(cluster, fetch, monkeypatch):
    """Starts an operator with two caches and probes, and stops it at the end."""
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(kopf.login_with_kubeconfig)
    settings = kopf.OperatorSettings()
    settings.networking.error_backoffs = [0.1]
    kopf.cache("configmaps", id="maps", registry=registry)
    kopf.cache("nosuchthings.example.com", id="optional", optional=True, registry=registry)
    stop = threading.Event()
    options = {
        "registry": registry,
        "settings": settings,
        "clusterwide": True,
        "standalone": True,
        "liveness_endpoint": f"{fetch.endpoint}/healthz",
        "stop_flag": stop,
    }
    thread = threading.Thread(target=kopf.run, kwargs=options)
    yield thread.start
    stop.set()
    thread.join(30)
    assert not thread.is_alive()


def test_2_6_the_operator_is_not_ready_before_its_caches(cluster, fetch, serve):
    cluster.inject("code", 403, verb="list", resource="configmaps")
    serve()

    def missing_of_the_cache():
        code, text = fetch("/readyz")
        parts = text.strip().split("; ") if code == 503 and text.startswith("[-]synced failed: ") else []
        return [part for part in parts if part.startswith("cache ") and "403" in part]

    [line] = wait_until(missing_of_the_cache)
    assert line.startswith('cache "maps": these are not listed yet: configmaps.v1 cluster-wide ('), line
    cluster.clear_faults()
    wait_until(lambda: fetch("/readyz") == (200, "ok"))


def test_2_6_metrics_of_caches(create, fetch, serve):
    create("one", {"key": "value"})
    create("two", {"key": "value"})
    serve()
    wait_until(lambda: fetch("/readyz")[0] == 200)
    text = fetch("/metrics")[1]
    assert "# TYPE kopf_cache_objects gauge\n" in text
    assert 'kopf_cache_objects{id="maps"} 2\n' in text
    assert 'kopf_cache_objects{id="optional"} 0\n' in text
    [size] = re.findall(r'^kopf_cache_bytes\{id="maps"\} (\d+)$', text, re.M)
    assert 100 < int(size) < 10_000
    assert 'kopf_cache_stale_seconds{id="maps"} 0\n' in text


def test_2_6_a_failing_watch_makes_a_cache_stale(cluster, fetch, serve):
    serve()
    wait_until(lambda: fetch("/readyz")[0] == 200)
    cluster.inject("code", 503, verb="watch", resource="configmaps")
    cluster.drop_watches("configmaps")

    def is_stale():
        text = fetch("/metrics")[1]
        [found] = re.findall(r'^kopf_cache_stale_seconds\{id="maps"\} (\S+)$', text, re.M)
        return float(found) > 0

    wait_until(is_stale)
    assert fetch("/readyz")[0] == 200, "a cache that was filled can be read"
    cluster.clear_faults()
    wait_until(lambda: not is_stale())
