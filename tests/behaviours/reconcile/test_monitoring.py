"""The readiness endpoint and the metrics of reconcilers. Section 1.13; scenario 1.14.20."""

import json
import logging
import queue
import re
import socket
import threading
import urllib.error
import urllib.request

import kopf
import pytest

pytestmark = pytest.mark.kopf_embedded_only


@pytest.fixture
def endpoint():
    """The address of a free port for the probes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture
def calls():
    return queue.Queue()


@pytest.fixture
def released():
    """Ends the calls that hang."""
    return threading.Event()


@pytest.fixture
def serve(cluster, endpoint, calls, released, monkeypatch):
    """Starts an operator with probes and two reconcilers, and stops it at the end."""
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(kopf.login_with_kubeconfig)
    settings = kopf.OperatorSettings()
    settings.reconciling.warn_after = 0.2
    settings.reconciling.backoff = 3600
    settings.networking.error_backoffs = [0.1]
    settings.health.handler_limit = 0.5

    @kopf.on.reconcile("widgets", id="waiting", owns=["configmaps"], registry=registry)
    def waiting(name, **_):
        calls.put(("waiting", name))

    @kopf.on.reconcile("widgets", id="ready", registry=registry)
    def ready(name, spec, **_):
        calls.put(("ready", name))
        if spec.get("fails"):
            raise ValueError("boo")
        if spec.get("hangs"):
            released.wait()

    stop, started = threading.Event(), threading.Event()
    options = {
        "registry": registry,
        "settings": settings,
        "clusterwide": True,
        "standalone": True,
        "liveness_endpoint": f"{endpoint}/healthz",
        "stop_flag": stop,
        "ready_flag": started,
    }
    thread = threading.Thread(target=kopf.run, kwargs=options)

    def start():
        thread.start()
        assert started.wait(30)

    yield start
    released.set()
    stop.set()
    thread.join(30)
    assert not thread.is_alive()


@pytest.fixture
def logged():
    """Waits until so many warnings with the text are logged, and returns them."""
    lines, arrived = [], threading.Condition()

    class Handler(logging.Handler):
        def emit(self, record):
            with arrived:
                lines.append(record.getMessage())
                arrived.notify_all()

    def wait(text, count):
        def matching():
            return [line for line in lines if re.search(text, line)]

        with arrived:
            assert arrived.wait_for(lambda: len(matching()) >= count, timeout=30), lines
            return matching()

    handler = Handler()
    logging.getLogger().addHandler(handler)
    yield wait
    logging.getLogger().removeHandler(handler)


def fetch(url):
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except urllib.error.URLError:
        return 0, "the operator does not listen yet"


def until(condition):
    """Wait for an answer of the endpoint, which no event announces."""
    assert next((True for _ in range(10_000) if condition()), False)


def test_1_14_20_the_operator_is_not_ready_while_a_list_is_forbidden(
    serve, make, cluster, endpoint, calls, logged
):
    cluster.inject("code", 403, verb="list", resource="configmaps")
    make("a")
    serve()
    # Before the response, the list is missing without a reason.
    logged(r"'waiting' has been waiting .*list configmaps.*403", 3)
    code, text = fetch(f"{endpoint}/readyz")
    assert code == 503
    [failure] = text.splitlines()
    assert failure.startswith("[-]synced failed: ")
    [missing] = [part for part in failure.split("; ") if part.startswith("Reconciler 'waiting'")]
    assert "list configmaps" in missing
    assert fetch(f"{endpoint}/ready")[0] == 503
    assert json.loads(fetch(f"{endpoint}/streams")[1])["waiting"] == [missing]
    assert calls.get(timeout=30) == ("ready", "a")
    assert calls.empty()
    cluster.clear_faults()
    assert calls.get(timeout=30) == ("waiting", "a")
    until(lambda: fetch(f"{endpoint}/readyz") == (200, "ok"))


def test_1_13_metrics_of_reconcilers(serve, make, endpoint):
    serve()
    make("a")
    make("b", spec={"fails": True})
    ended = 'kopf_reconcile_duration_seconds_count{handler="waiting"} 2'
    until(lambda: ended in fetch(f"{endpoint}/metrics")[1])
    failed = 'kopf_reconcile_total{handler="ready",outcome="failed"} 1'
    until(lambda: failed in fetch(f"{endpoint}/metrics")[1])
    lines = fetch(f"{endpoint}/metrics")[1].splitlines()
    for line in (
        'kopf_reconcile_total{handler="ready",outcome="succeeded"} 1',
        'kopf_reconcile_total{handler="waiting",outcome="succeeded"} 2',
        'kopf_reconcile_total{handler="waiting",outcome="gave_up"} 0',
        'kopf_reconcile_triggers_total{handler="ready",source="related"} 0',
        'kopf_reconcile_duration_seconds_count{handler="ready"} 2',
        'kopf_reconcile_queue{handler="ready",priority="scheduled"} 1',
        'kopf_reconcile_running{handler="ready"} 0',
        'kopf_reconcile_longest_seconds{handler="ready"} 0',
        'kopf_reconcile_oldest_seconds{handler="ready"} 0',
        'kopf_reconcile_failing{handler="ready"} 1',
    ):
        assert line in lines, lines
    # The objects may be in the first list, or come after it.
    triggers = [line for line in lines if line.startswith('kopf_reconcile_triggers_total{handler="ready"')]
    assert sum(int(line.split()[-1]) for line in triggers) == 2


def test_a_call_that_hangs_fails_the_check_of_the_handlers(serve, make, endpoint, released):
    serve()
    make("a", spec={"hangs": True})
    until(lambda: "[-]handlers failed: " in fetch(f"{endpoint}/livez")[1])

    def ages():
        lines = fetch(f"{endpoint}/metrics")[1].splitlines()
        found = [line for line in lines if line.startswith("kopf_reconcile_longest_seconds{")]
        return [float(line.split()[-1]) for line in found]

    assert max(ages()) > 0
    released.set()
    until(lambda: fetch(f"{endpoint}/livez") == (200, "ok"))
    until(lambda: max(ages()) == 0)
