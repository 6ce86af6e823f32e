"""The metrics of an operator: their format, their documentation, and a blocked event loop."""

import collections
import json
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import kopf
import pytest

from tests.behaviours.metrics.monitored_operator import free_address
from tests.support.metrics import documented, labels_of, parse
from tests.support.programs import promtool

pytestmark = pytest.mark.kopf_embedded_only

LIMIT = 30.0


class Served:
    """A running operator in a thread; its handler blocks the event loop until `release` is set."""

    def __init__(
        self,
        cluster,
        status_address: str | None = None,
        webhooks: str | None = None,
        lease: str | None = None,
    ) -> None:
        self.url = f"http://{free_address()}"
        self.status_address, self.webhooks = status_address, webhooks
        self.blocked, self.release, self.stop = threading.Event(), threading.Event(), threading.Event()
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(kopf.login_with_kubeconfig)
        kopf.on.startup(registry=registry)(self.configure)
        kopf.on.event("configmaps", annotations={"block": "yes"}, registry=registry)(self.block)
        kopf.on.create("configmaps", annotations={"count": "yes"}, id="count", registry=registry)(self.count)
        kept = {"annotations": {"keep": "yes"}, "registry": registry}
        kopf.on.create("configmaps", id="keep", **kept)(self.keep)
        kopf.on.update("configmaps", id="keep", **kept)(self.keep)
        kopf.on.delete("configmaps", id="release", **kept)(self.release_object)
        if webhooks is not None:
            kopf.on.validate("secrets", id="check", registry=registry)(self.check)
        settings = kopf.OperatorSettings()
        settings.networking.error_backoffs = [0.01, 0.01]
        if lease is not None:
            settings.leadership.enabled, settings.leadership.name = True, lease
            settings.leadership.namespace = "default"
        options = {"registry": registry, "settings": settings, "clusterwide": True}
        options |= {"standalone": True, "stop_flag": self.stop, "liveness_endpoint": f"{self.url}/healthz"}
        self.thread = threading.Thread(target=kopf.run, kwargs=options)
        self.thread.start()

    async def configure(self, settings, **_) -> None:
        settings.health.address = self.status_address
        if self.webhooks is not None:
            host, port = self.webhooks.split(":")
            settings.admission.server = kopf.WebhookServer(addr=host, port=int(port), insecure=True)

    async def check(self, name, **_) -> None:
        if name == "denied":
            raise kopf.AdmissionError("It is denied.")
        if name == "broken":
            raise ValueError("It is broken.")

    async def block(self, **_) -> None:
        self.blocked.set()
        self.release.wait(LIMIT)

    async def count(self, patch, **_) -> None:
        patch.metadata.labels["counted"] = "yes"

    async def keep(self, body, patch, **_) -> None:
        patch.metadata.labels["kept"] = body["data"]["x"]

    async def release_object(self, **_) -> None:
        pass

    def get(self, path: str, url: str | None = None) -> str:
        try:
            with urllib.request.urlopen((url or self.url) + path, timeout=LIMIT) as response:
                return response.read().decode()
        except urllib.error.URLError:
            return ""

    def wait_until(self, condition) -> None:
        deadline = time.monotonic() + LIMIT
        while not condition():
            assert time.monotonic() < deadline, self.get("/metrics")
            threading.Event().wait(0.02)


@pytest.fixture
def served(cluster, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    operator = Served(cluster)
    yield operator
    operator.release.set()
    operator.stop.set()
    operator.thread.join(LIMIT)
    assert not operator.thread.is_alive()


@pytest.mark.skipif(sys.platform != "linux", reason="the metrics of the process need /proc")
def test_every_metric_is_documented_and_every_documented_metric_is_exposed(served):
    """MET-1 and the last claim of MET-6, for the metrics that exist."""
    served.wait_until(lambda: served.get("/readyz") == "ok")
    served.wait_until(lambda: "kopf_loop_tick_age_seconds" in served.get("/metrics"))
    families = parse(served.get("/metrics"))
    names = set(families)
    if "process_max_fds" not in names:  # the limit of this process is infinite
        names.add("process_max_fds")
    of_docs = documented("probes.md")
    assert names == set(of_docs)
    for name, labels in labels_of(families).items():
        assert labels == of_docs[name], name
    assert ('resource="configmaps"', 1) in families["kopf_synced"]
    [(labels, value)] = families["kopf_build_info"]
    version = ".".join(map(str, sys.version_info[:3]))
    assert value == 1 and f'python="{version}"' in labels


def test_promtool_has_no_complaint_about_the_metrics(cluster, served):
    """MET-1."""
    path = promtool()
    served.wait_until(lambda: served.get("/readyz") == "ok")
    served.wait_until(lambda: "kopf_loop_tick_age_seconds" in served.get("/metrics"))
    meta = {"name": "counted", "annotations": {"count": "yes"}}
    cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    calls = 'kopf_handler_calls_total{handler="count",outcome="succeeded"} 1\n'
    served.wait_until(lambda: calls in served.get("/metrics"))
    done = subprocess.run(
        [path, "check", "metrics"],
        input=served.get("/metrics"),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_attempts_and_patches_equal_the_request_log_of_the_server(cluster, served):
    """MET-3, for requests with rejections and failures. Lost responses: see the page."""
    served.wait_until(lambda: served.get("/readyz") == "ok")
    # The next list has an object, also if it comes before the others are created.
    cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "listed"}})
    cluster.inject("code", 500, verb="patch", resource="configmaps", times=7)
    cluster.inject("code", 409, verb="patch", resource="configmaps", times=3)
    cluster.inject("code", 410, verb="watch", resource="configmaps", times=2)
    cluster.drop_watches("configmaps")
    for number in range(20):
        meta = {"name": f"counted-{number}", "annotations": {"count": "yes"}}
        cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})

    def are_handled() -> bool:
        found = cluster.list("configmaps")
        return sum("counted" in it["metadata"].get("labels", {}) for it in found) == 20

    def of_server() -> collections.Counter[tuple[str, str]]:
        own = [it for it in cluster.requests if it.agent.startswith("kopf/")]
        return collections.Counter((it.method, str(it.code or "<error>")) for it in own)

    def patches() -> dict[str, float]:
        samples = parse(served.get("/metrics"))["kopf_patches_total"]
        found = [(dict(re.findall(r'(\w+)="(.*?)"', labels)), value) for labels, value in samples]
        assert {labels["part"] for labels, value in found if value} == {"body"}
        body = [(labels, value) for labels, value in found if labels["part"] == "body"]
        return {labels["result"]: value for labels, value in body if value}

    def of_operator() -> dict[tuple[str, str], float]:
        samples = parse(served.get("/metrics"))["rest_client_requests_total"]
        found = [(dict(re.findall(r'(\w+)="(.*?)"', labels)), value) for labels, value in samples]
        assert {labels["host"] for labels, _ in found} == {cluster.connection.server.split("//")[1]}
        return {(labels["method"], labels["code"]): value for labels, value in found}

    served.wait_until(are_handled)
    results = {"refused": "500", "conflict": "409", "applied": "200"}  # each patch changes its object

    def are_equal() -> bool:
        """The last patches of some objects may still follow."""
        found, counts = patches(), of_operator()
        counted = {result: counts["PATCH", code] for result, code in results.items()}
        return counts == of_server() and found == counted

    served.wait_until(are_equal)
    counts = of_operator()
    families = parse(served.get("/metrics"))
    of_handler = dict(families["kopf_handler_calls_total"])
    assert of_handler['handler="count",outcome="succeeded"'] >= 20
    reasons = dict(families["kopf_cycles_total"])
    assert reasons['resource="configmaps",reason="create"'] >= 20
    records = dict(families["kopf_watch_events_total"])
    assert records['resource="configmaps",type="listed"'] > 0
    assert all(counts["PATCH", code] > 0 for code in ("500", "409", "200")) and counts["GET", "410"] > 0


def test_lost_responses_of_changes_and_deletions_are_counted(cluster, served):
    """MET-3: 50 objects are created, changed and deleted, with rejections and lost responses."""
    served.wait_until(lambda: served.get("/readyz") == "ok")
    lost, rejected = 5, 10
    cluster.inject("lost", verb="patch", resource="configmaps", client="kopf/", times=lost)
    cluster.inject("code", 500, verb="patch", resource="configmaps", client="kopf/", times=rejected, after=20)
    names = [f"kept-{number}" for number in range(50)]

    def present() -> list[str | None]:
        """The values of the label of those that exist."""
        found = [it["metadata"] for it in cluster.list("configmaps") if it["metadata"]["name"] in names]
        return [metadata.get("labels", {}).get("kept") for metadata in found]

    for name in names:
        meta = {"name": name, "annotations": {"keep": "yes"}}
        cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"x": "1"}})
    served.wait_until(lambda: present() == ["1"] * 50)
    for name in names:
        cluster.patch("configmaps", name, {"data": {"x": "2"}})
    served.wait_until(lambda: present() == ["2"] * 50)
    for name in names:
        cluster.delete("configmaps", name)
    served.wait_until(lambda: not present())

    def counted(name: str, *labels: str) -> collections.Counter[tuple[str, ...]]:
        counts: collections.Counter[tuple[str, ...]] = collections.Counter()
        for text, value in parse(served.get("/metrics"))[name]:
            found = dict(re.findall(r'(\w+)="(.*?)"', text))
            counts[tuple(found[label] for label in labels)] += int(value)
        return +counts

    def of_server() -> collections.Counter[tuple[str, ...]]:
        own = [it for it in cluster.requests if it.agent.startswith("kopf/")]
        return collections.Counter((it.method, str(it.code or "<error>")) for it in own)

    served.wait_until(lambda: counted("rest_client_requests_total", "method", "code") == of_server())
    results, codes = counted("kopf_patches_total", "result"), of_server()
    assert results["unknown",] == codes["PATCH", "<error>"] == lost
    assert codes["PATCH", "500"] == rejected
    # Servers report the failed test of a JSON patch as 422: the versions after lost responses are unknown.
    assert results["conflict",] == codes["PATCH", "409"] + codes["PATCH", "422"]
    assert results["refused",] == rejected


def test_reviews_count_by_their_result_until_the_response_is_sent(cluster, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    webhooks = free_address()
    operator = Served(cluster, webhooks=webhooks)

    def review(name: str, webhook: str = "check") -> bool | int:
        request = {
            "uid": name,
            "operation": "CREATE",
            "resource": {"group": "", "version": "v1", "resource": "secrets"},
            "userInfo": {},
            "object": {"metadata": {"name": name, "namespace": "default"}},
        }
        url, body = f"http://{webhooks}/{webhook}", json.dumps({"request": request}).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body), timeout=LIMIT) as response:
                return json.load(response)["response"]["allowed"]
        except urllib.error.HTTPError as error:
            return error.code

    def samples(name: str) -> dict[str, float]:
        return {labels: value for labels, value in parse(operator.get("/metrics"))[name] if value}

    try:
        operator.wait_until(lambda: operator.get("/readyz") == "ok")
        assert samples("kopf_reviews_total") == {}
        assert [review("fine"), review("fine"), review("denied"), review("broken")] == [
            True,
            True,
            False,
            False,
        ]
        assert review("fine", "unknown") == 404
        assert samples("kopf_reviews_total") == {
            'resource="_other",result="errored"': 1,
            'resource="secrets",result="allowed"': 2,
            'resource="secrets",result="denied"': 1,
            'resource="secrets",result="errored"': 1,
        }
        durations = samples("kopf_review_duration_seconds")
        assert durations['resource="secrets",le="+Inf"'] == 4
    finally:
        operator.stop.set()
        operator.thread.join(LIMIT)


def test_the_age_of_the_heartbeat_grows_while_the_event_loop_is_blocked(cluster, served):
    """MET-5, with a shorter block: scrapes do not depend on Python."""
    served.wait_until(lambda: served.get("/readyz") == "ok")
    meta = {"name": "blocking", "annotations": {"block": "yes"}}
    cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    assert served.blocked.wait(LIMIT)

    def age() -> float:
        [(_, value)] = parse(served.get("/metrics"))["kopf_loop_tick_age_seconds"]
        return value

    served.wait_until(lambda: age() >= 3)
    served.release.set()
    served.wait_until(lambda: age() < 2)


def test_two_operators_in_one_process_have_separate_metrics(cluster, served):
    """MET-8"""
    other = Served(cluster)
    try:
        for operator in (served, other):
            operator.wait_until(lambda operator=operator: operator.get("/readyz") == "ok")
        meta = {"name": "counted", "annotations": {"count": "yes"}}
        served.stop.set()
        served.thread.join(LIMIT)
        cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
        calls = 'kopf_handler_calls_total{handler="count",outcome="succeeded"} 1\n'
        other.wait_until(lambda: calls in other.get("/metrics"))
        assert served.get("/metrics") == ""
    finally:
        other.stop.set()
        other.thread.join(LIMIT)


def test_the_objects_of_a_standby_do_not_look_like_overload(cluster, monkeypatch):
    """MET-10, with fewer objects: by these values, the alert KopfQueueOld does not fire."""
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "monitored"}}
    cluster.create({**kind, "spec": {"holderIdentity": "other", "leaseDurationSeconds": 3600}})
    for number in range(100):
        meta = {"name": f"counted-{number}", "annotations": {"count": "yes"}}
        cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    total = len(cluster.list("configmaps", "*"))
    operator = Served(cluster, lease="monitored")
    try:
        deferred = f'kopf_queue_depth{{resource="configmaps",queue="deferred"}} {total}\n'
        operator.wait_until(lambda: deferred in operator.get("/metrics"))
        operator.wait_until(lambda: operator.get("/readyz") == "ok")
        families = parse(operator.get("/metrics"))
        depths = {label: value for label, value in families["kopf_queue_depth"] if "deferred" not in label}
        assert len(depths) >= 2 and set(depths.values()) == {0}
        assert {value for _, value in families["kopf_queue_oldest_seconds"]} == {0}
        states = dict(families["kopf_operator_state"])
        assert (states['state="standby"'], states['state="active"']) == (1, 0)
        assert sum(value for _, value in families["kopf_handler_calls_total"]) == 0
    finally:
        operator.stop.set()
        operator.thread.join(LIMIT)


def test_a_startup_handler_sets_the_address_of_the_status_endpoints(cluster, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    address = free_address()
    operator = Served(cluster, address)
    try:
        operator.wait_until(lambda: operator.get("/readyz", f"http://{address}") == "ok")
        assert "kopf_build_info" in operator.get("/metrics", f"http://{address}")
        assert operator.get("/healthz") == "{}"
        assert operator.get("/metrics") == "" == operator.get("/healthz", f"http://{address}")
    finally:
        operator.stop.set()
        operator.thread.join(LIMIT)
