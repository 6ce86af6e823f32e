"""The work of the embedded server and its operators before they are idle, and its names in errors."""

import asyncio
import http.client
import ssl
import threading
import urllib.parse

import kopf
import pytest
from kopf.testing import Cluster, Operator

pytestmark = pytest.mark.kopf_embedded_only


def named(cluster, pattern):
    with pytest.raises(TimeoutError, match=pattern):
        cluster.wait_until_idle(timeout=0.1)


def test_a_handler_that_has_not_returned_is_named(cluster, make):
    started, gate = threading.Event(), threading.Event()

    def handlers():
        @kopf.on.create("widgets")
        def slow(**_):
            started.set()
            gate.wait(60)

    with Operator(cluster, handlers) as operator:
        make(spec={})
        assert started.wait(60)
        named(cluster, r"Busy: .*'slow' of default/one")
        with pytest.raises(TimeoutError, match=r"was not idle within 0\.1 seconds"):
            operator.wait_until_idle(timeout=0.1)
        gate.set()
        operator.wait_until_idle()


def test_an_event_loop_that_executes_a_callback_is_busy(cluster, make):
    started, gate = threading.Event(), threading.Event()

    def block():
        started.set()
        gate.wait(60)

    def handlers():
        @kopf.on.create("widgets")
        async def later(**_):
            asyncio.get_running_loop().call_later(0.01, block)

    with Operator(cluster, handlers) as operator:
        make(spec={})
        assert started.wait(60)
        named(cluster, "Busy: .*the event loop of an operator")
        gate.set()
        operator.wait_until_idle()


def test_a_request_that_takes_long_is_named(cluster, make):
    def handlers():
        @kopf.on.create("widgets")
        def fn(patch, **_):
            patch.status["done"] = True

    with Operator(cluster, handlers) as operator:
        operator.wait_until_idle()
        cluster.inject("latency", 2, verb="patch", resource="widgets/status", times=1)
        make(spec={})
        cluster.freeze()
        with pytest.raises(TimeoutError, match=r"Busy: .*the request PATCH /apis/\S+/widgets/one"):
            cluster.wait_until_idle(timeout=1)
        cluster.wait_until_idle()
        assert cluster.get("widgets", "one")["status"]["done"]


def test_operators_that_have_just_been_started_are_not_idle(cluster, make):
    calls = []

    def handlers():
        @kopf.on.create("widgets")
        def fn(name, **_):
            calls.append(name)

    make(spec={})
    cluster.freeze()
    for count in range(1, 6):
        with Operator(cluster, handlers):
            cluster.wait_until_idle()
            assert calls == ["one"] * count
        cluster.patch("widgets", "one", {"metadata": {"annotations": None}})


def test_the_watch_of_another_client_is_known(cluster):
    url = urllib.parse.urlsplit(cluster.url)
    authority = cluster.connection.ca_data
    authority = authority.decode() if isinstance(authority, bytes) else authority
    context = ssl.create_default_context(cadata=authority)
    client = http.client.HTTPSConnection(url.hostname, url.port, context=context, timeout=60)
    headers = {"Authorization": f"Bearer {cluster.connection.token}"}
    clock = cluster.clock.clock
    client.request("GET", "/api/v1/namespaces", headers=headers)
    assert client.getresponse().read()
    local = "{}:{}".format(*client.sock.getsockname())
    assert not any(local in text for texts in clock.observe() for text in texts), "it waits for nothing"
    client.request("GET", "/api/v1/namespaces?watch=true", headers=headers)
    response = client.getresponse()
    assert response.status == 200
    assert clock.observe()[2] == [f"a watch of the other client {local}"]
    cluster.wait_until_idle()
    client.close()
    response.close()
    for _ in range(1000):
        cluster.wait_until_idle()
        if not clock.observe()[2]:
            return
    raise AssertionError("The server has not noticed the end of the client.")


def test_threads_that_wait_for_a_processor_are_counted():
    from kopf._testing.clock import virtual_clock

    end = threading.Event()

    def spin():
        while not end.is_set():
            pass

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        assert any(virtual_clock().runnable_threads() for _ in range(100))
    finally:
        end.set()
        thread.join()


@pytest.fixture
def foreign(cluster):
    """The same server as a cluster about which only the operator's side is known."""
    with Cluster("kubeconfig", kubeconfig=cluster.kubeconfig) as foreign:
        yield foreign


@pytest.mark.parametrize("where", ["widgets", "behaviours.example.com/v1"])
def test_elsewhere_operators_are_not_idle_before_their_first_listings(cluster, foreign, make, where):
    calls = []

    def handlers():
        @kopf.on.create("widgets")
        def fn(name, **_):
            calls.append(name)

    make(spec={})
    cluster.inject("latency", 2, verb="" if "/" in where else "list", resource=where, times=1)
    with Operator(foreign, handlers) as operator:
        with pytest.raises(TimeoutError, match=r"Busy: .*(the scan of the cluster|widgets)"):
            operator.wait_until_idle(timeout=1)
        operator.wait_until_idle(timeout=60)
        assert calls == ["one"]


def test_elsewhere_the_busy_handler_is_named(foreign, make):
    started, gate = threading.Event(), threading.Event()

    def handlers():
        @kopf.on.create("widgets")
        def slow(**_):
            started.set()
            gate.wait(60)

    with Operator(foreign, handlers) as operator:
        make(spec={})
        assert started.wait(60)
        with pytest.raises(TimeoutError, match=r"Busy: .*'slow' of default/one"):
            operator.wait_until_idle(timeout=1)
        gate.set()
        operator.wait_until_idle(timeout=60)


def test_elsewhere_kinds_that_cannot_be_listed_are_not_awaited(cluster, foreign):
    def handlers():
        @kopf.on.create("widgets")
        def fn(**_):
            pass

    cluster.inject("code", 403, verb="list", resource="widgets")
    with Operator(foreign, handlers) as operator:
        operator.wait_until_idle(timeout=60)
