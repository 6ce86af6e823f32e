"""Reconcilers of a replica that stands by, and of one that takes over."""

import contextlib
import threading
import time
import urllib.error
import urllib.request

import kopf
import pytest

from tests.behaviours.metrics.monitored_operator import LIMIT, free_address

pytestmark = pytest.mark.kopf_embedded_only

LEASE = ("leases", "monitored")


@pytest.fixture
def release(cluster):
    """Another replica leads, until this is called."""
    kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    metadata = {"name": LEASE[1], "namespace": "default"}
    spec = {"holderIdentity": "other", "leaseDurationSeconds": 3600, "leaseTransitions": 1}
    cluster.create({**kind, "metadata": metadata, "spec": spec})
    return lambda: cluster.patch(*LEASE, {"spec": {"holderIdentity": ""}}, namespace="default")


@pytest.fixture
def settings():
    settings = kopf.OperatorSettings()
    settings.leadership.enabled = True
    settings.leadership.name, settings.leadership.namespace = LEASE[1], "default"
    return settings


def test_a_takeover_calls_each_primary_once_after_the_list(cluster, release, settings, make, kopf_operator):
    cluster.freeze()
    calls = []

    def handlers():
        @kopf.on.reconcile("widgets")
        async def sync(name, **_):
            calls.append(name)

    operator = kopf_operator(handlers, settings=settings)
    make("one")
    operator.wait_until_idle()
    assert not calls
    cluster.inject("latency", 0.3, verb="list", resource="widgets", times=1)
    release()
    operator.wait_until_idle()
    cluster.advance(10)
    assert calls == ["one"]


def test_a_takeover_reports_the_lists_that_it_waits_for(
    cluster, release, settings, make, kopf_operator, caplog
):
    cluster.freeze()
    calls = []

    def handlers():
        @kopf.on.reconcile("widgets")
        async def sync(name, **_):
            calls.append(name)

    settings.reconciling.warn_after = 20
    settings.networking.error_backoffs = []
    operator = kopf_operator(handlers, settings=settings)
    make("one")
    operator.wait_until_idle()
    cluster.inject("code", 403, verb="list", resource="widgets")
    release()
    operator.wait_until_idle()
    cluster.advance(50)
    lines = [it.getMessage() for it in caplog.records if "has been waiting for" in it.getMessage()]
    assert len(lines) == 2 and not calls
    assert "20 s. Missing: list widgets" in lines[0] and "403" in lines[0]
    cluster.clear_faults()
    cluster.advance(60)
    assert calls == ["one"]


@contextlib.contextmanager
def running(registry, settings):
    """Runs an operator, and yields a function that reads its metrics."""
    stop, address = threading.Event(), f"http://{free_address()}"
    options = {"registry": registry, "settings": settings, "clusterwide": True, "standalone": True}
    options |= {"stop_flag": stop, "liveness_endpoint": f"{address}/healthz"}
    thread = threading.Thread(target=kopf.run, kwargs=options)

    def metrics():
        try:
            with urllib.request.urlopen(f"{address}/metrics", timeout=LIMIT) as response:
                return response.read().decode()
        except urllib.error.URLError:
            return ""

    thread.start()
    try:
        yield metrics
    finally:
        stop.set()
        thread.join(LIMIT)
    assert not thread.is_alive()


def test_a_standby_does_not_even_try_to_edit_finalizers(
    cluster, release, settings, make, finalizer, monkeypatch
):
    """The number of rejected writes is that of the attempts."""
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(kopf.login_with_kubeconfig)
    called = threading.Event()

    @kopf.on.reconcile("widgets", id="shared", deletion=True, registry=registry)
    def shared(**_):
        pass

    @kopf.on.reconcile(
        "widgets", id="separate", deletion=True, finalizer="example.com/own", registry=registry
    )
    def separate(name, **_):
        if name == "two":
            called.set()

    def wait_for_trigger(source):
        deadline = time.monotonic() + LIMIT
        text = f'kopf_reconcile_triggers_total{{handler="separate",source="{source}"}} 1\n'
        while text not in metrics():
            assert time.monotonic() < deadline, metrics()
            threading.Event().wait(0.05)

    make("one")
    with running(registry, settings) as metrics:
        wait_for_trigger("list")
        make("two")
        wait_for_trigger("primary")
        assert 'kopf_fenced_total{what="write"} 0\n' in metrics()
        assert "finalizers" not in cluster.get("widgets", "one")["metadata"]
        release()
        assert called.wait(LIMIT)
        expected = sorted([finalizer, "example.com/own"])
        for name in ("one", "two"):
            cluster.wait_for(
                "widgets", name, lambda body: sorted(body["metadata"].get("finalizers", [])) == expected
            )
