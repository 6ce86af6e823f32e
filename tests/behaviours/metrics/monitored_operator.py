"""An operator with all kinds of handlers, a cache and leader election; and a mixed load with faults."""

import itertools
import json
import socket
import threading
import time
import urllib.error
import urllib.request

import kopf

LIMIT = 60.0
WIDGETS = "widgets.behaviours.example.com"
GADGETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.behaviours.example.com}
spec:
  group: behaviours.example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


def free_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


async def create(body, name, retry, patch, **_):
    kopf.event(body, type="Normal", reason="Created", message="It is created.")
    patch.status["created"] = True
    if name.startswith("failing"):
        raise kopf.PermanentError("It fails for good.")
    if name.startswith("late") and not retry:
        raise kopf.TemporaryError("It is late.", delay=0.1)


def update(retry, **_):
    if not retry:
        raise ValueError("It fails once.")


async def do_nothing(**_):
    pass


async def check(name, **_):
    if name == "denied":
        raise kopf.AdmissionError("It is denied.")


async def watch_over(stopped, **_):
    await stopped.wait()


def to_index(name, **_):
    return {name: 1}


class MonitoredOperator:
    """The operator, in a thread from the start to the end of the context."""

    def __init__(self, status: str, webhooks: str) -> None:
        self.status, self.webhooks, self.stop = f"http://{status}", webhooks, threading.Event()
        registry = kopf.OperatorRegistry()
        on = {"registry": registry}
        kopf.on.login(**on)(kopf.login_with_kubeconfig)
        kopf.on.startup(**on)(self.configure)
        kopf.on.create(WIDGETS, id="create", **on)(create)
        kopf.on.update(WIDGETS, id="update", backoff=0.1, **on)(update)
        kopf.on.delete(WIDGETS, id="delete", **on)(do_nothing)
        kopf.on.event(WIDGETS, id="event", **on)(do_nothing)
        kopf.on.event("gadgets", id="unsynced", **on)(do_nothing)
        kopf.on.event("secrets", id="troubled", **on)(do_nothing)
        kopf.daemon(WIDGETS, id="daemon", **on)(watch_over)
        kopf.timer(WIDGETS, id="timer", interval=0.5, **on)(do_nothing)
        kopf.index(WIDGETS, id="index", **on)(to_index)
        kopf.on.validate(WIDGETS, id="check", **on)(check)
        kopf.on.reconcile(WIDGETS, id="sync", **on)(do_nothing)
        kopf.cache("configmaps", id="maps", **on)
        settings = kopf.OperatorSettings()
        settings.networking.error_backoffs = [0.01, 0.01]
        settings.leadership.enabled, settings.leadership.warm = True, False
        settings.leadership.name, settings.leadership.namespace = "monitored", "default"
        options = {"registry": registry, "settings": settings, "clusterwide": True}
        options |= {"standalone": True, "stop_flag": self.stop, "liveness_endpoint": f"{self.status}/healthz"}
        self.thread = threading.Thread(target=kopf.run, kwargs=options)

    async def configure(self, settings, **_) -> None:
        host, port = self.webhooks.split(":")
        settings.admission.server = kopf.WebhookServer(addr=host, port=int(port), insecure=True)

    def __enter__(self) -> "MonitoredOperator":
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.stop.set()
        self.thread.join(LIMIT)
        assert not self.thread.is_alive()

    def metrics(self) -> str:
        try:
            with urllib.request.urlopen(f"{self.status}/metrics", timeout=LIMIT) as response:
                return response.read().decode()
        except urllib.error.URLError:
            return ""

    def wait_until(self, condition) -> None:
        deadline = time.monotonic() + LIMIT
        while not condition(self.metrics()):
            assert time.monotonic() < deadline, self.metrics()
            threading.Event().wait(0.05)

    def wait_until_leading(self) -> None:
        """Wait until it leads and has listed the widgets: it does not know their webhook before."""
        leading = 'leader_election_master_status{name="default/monitored"} 1\n'
        synced = f'kopf_synced{{resource="{WIDGETS}"}} 1\n'
        expected = (leading, synced, "kopf_threads_limit ")
        self.wait_until(lambda text: all(part in text for part in expected))

    def review(self, name: str) -> None:
        request = {
            "uid": name,
            "operation": "CREATE",
            "resource": {"group": "behaviours.example.com", "version": "v1", "resource": "widgets"},
            "userInfo": {},
            "object": {"metadata": {"name": name, "namespace": "default"}},
        }
        body = json.dumps({"request": request}).encode()
        url = urllib.request.Request(f"http://{self.webhooks}/check", body)
        with urllib.request.urlopen(url, timeout=LIMIT) as response:
            assert json.load(response)["response"]["allowed"] == (name != "denied")


class Load:
    """Objects that are created, changed and deleted, reviews, and faults of the server."""

    def __init__(self, cluster, operator: MonitoredOperator) -> None:
        self.cluster, self.operator, self.numbers = cluster, operator, itertools.count()

    def make(self, name: str) -> None:
        meta = {"name": name, "namespace": "default"}
        kind = {"apiVersion": "behaviours.example.com/v1", "kind": "Widget"}
        self.cluster.create({**kind, "metadata": meta, "spec": {"size": 1}})

    def do_a_round(self) -> None:
        """One object of each behaviour is created, and those of the round before are changed or deleted."""
        number = next(self.numbers)
        for fault, value in (("code", 500), ("code", 409), ("code", 422), ("too-many-requests", 0)):
            self.cluster.inject(fault, value, verb="patch", resource="widgets", client="kopf/", times=1)
        names = ("fine", "late", "failing")
        for name in names:
            self.make(f"{name}-{number}")
            if number > 0:
                self.cluster.patch("widgets", f"{name}-{number - 1}", {"spec": {"size": 2}})
            if number > 1:
                self.cluster.delete("widgets", f"{name}-{number - 2}")
        self.operator.review("denied")
        self.operator.review("fine")
        self.cluster.inject("code", 410, verb="watch", resource="widgets", times=1)
        self.cluster.drop_watches("widgets")

    def break_watches(self) -> None:
        """The watch of a resource that was listed is rejected from now on."""
        reject_watches(self.cluster, "secrets")
        self.cluster.drop_watches("secrets")


def reject_watches(cluster, resource: str) -> None:
    """Let the server reject lists and watches of a resource."""
    for verb in ("list", "watch"):
        cluster.inject("code", 403, verb=verb, resource=resource)


def add_unlisted_resource(cluster) -> None:
    """Add a resource that cannot be listed. Until it is listed once, a check of the operator fails."""
    reject_watches(cluster, "gadgets")
    cluster.apply(GADGETS)
