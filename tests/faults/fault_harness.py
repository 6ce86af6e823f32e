"""One run of a fault: an operator with handlers of all kinds, changes of objects, and the final check.

The check finds lost and repeated calls, stuck objects, leaks, and an exit of the operator.
"""

import collections
import contextlib
import dataclasses
import json
import pathlib
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from kopf.testing import Cluster

from tests.faults import certificates, fault_proxy, plugin
from tests.faults.crds import ANYTHING, LAST, PREFIX, make_crd
from tests.faults.fake_clock import FakeClock
from tests.faults.operator_process import OperatorProcess

GROUP = "faults.example.com"
KIND = "parcels"
NAME = "parcels-api.test"
SPEC = {"type": "object", **ANYTHING, "properties": {"strict": {"type": "integer"}}}
SCHEMA = {"properties": {"spec": SPEC, "status": {"type": "object", **ANYTHING}}}
CRD = make_crd(GROUP, "Parcel", SCHEMA, status=True)
# Seconds in which the operator must have handled everything; on a busy machine, it takes much longer.
CONVERGE = 120.0


@dataclasses.dataclass
class Result:
    """A row of the table."""

    fault: str
    survived: bool = False
    seconds: float = 0
    lost: int = 0
    doubles: int = 0
    exits: int = 0
    stuck: int = 0
    leaked: int = 0
    why: list[str] = dataclasses.field(default_factory=list)

    @property
    def verdict(self) -> str:
        """All in a word or two."""
        words = [word for word in ("exits", "stuck", "lost", "leaked") if getattr(self, word)]
        if self.doubles:
            words.append(f"{self.doubles} doubled")
        return ", ".join(words) or ("survived" if self.survived else "unfinished")


@dataclasses.dataclass(frozen=True)
class Scenery:
    """The environment of a fault, prepared before the operator starts."""

    tls: bool = False
    """The operator connects by a kubeconfig, and verifies the server's certificate."""
    plugin: bool = False
    """The operator connects by a kubeconfig with an exec plugin."""
    fake_clock: bool = False
    """The operator's clock and names are ours."""
    admission: bool = False
    liveness: bool = False
    """The operator serves probes at `Harness.liveness`."""
    bulk: int = 0
    """How many more objects there are."""
    converge: float = CONVERGE
    doubles: int = 0
    """The number of calls that may be repeated, since the process is killed between a call and the write of
    its outcome."""


class Harness:
    """One operator, one proxy, and a few objects."""

    def __init__(self, cluster: Cluster, name: str, scenery: Scenery, python: str = sys.executable) -> None:
        self.cluster, self.name, self.scenery = cluster, name, scenery
        info = cluster.connection
        context = ssl._create_unverified_context() if info.server.startswith("https") else None
        if context is not None and info.certificate_path:
            context.load_cert_chain(info.certificate_path, info.private_key_path)
        self._stack = contextlib.ExitStack()
        self.folder = pathlib.Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self.proxy = fault_proxy.FaultProxy(info.server, info.as_http_headers(), context)
        self.trust = certificates.Trust(self.folder) if scenery.tls or scenery.admission else None
        self.plugin = plugin.Plugin(self.folder) if scenery.plugin else None
        self.fake_clock = FakeClock(self.folder) if scenery.fake_clock else None
        self.calls: list[tuple[str, str, Any, Any]] = []
        self.expected: dict[str, int] = {}
        self.deleted: set[str] = set()
        self.demands: list[tuple[str, Callable[[], Any]]] = []
        """What else must hold at the end."""
        self._lock = threading.Lock()
        own = cluster.kind == "embedded"
        self.liveness = f"http://127.0.0.1:{fault_proxy.free_port()}" if scenery.liveness else None
        probes = ["--liveness", f"{self.liveness}/healthz"] if self.liveness else []
        self.operator_process = OperatorProcess(
            python,
            [*probes, *(["--all-namespaces"] if own else ["--namespace", cluster.namespace])],
            self._options(),
            self._environment(),
            self._called,
            self.folder,
        )

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if not (self.scenery.tls or self.scenery.plugin):
            url = self.proxy.url
            options["server"] = url.replace("127.0.0.1", NAME) if self.scenery.fake_clock else url
        if self.scenery.admission and self.trust is not None:
            self.port = fault_proxy.free_port()
            options["managed"] = GROUP
            options["webhooks"] = {"port": self.port, **self.trust.files()}
        return options

    def _environment(self) -> dict[str, str]:
        environment: dict[str, str] = {"HOME": str(self.folder)}
        if self.fake_clock is not None:
            environment |= self.fake_clock.environment
        if self.plugin is not None:
            environment["KUBECONFIG"] = str(self.plugin.kubeconfig(self.proxy.url))
        if self.scenery.tls and self.trust is not None:
            self.proxy.tls = self.trust.context()
            environment["KUBECONFIG"] = str(self.trust.kubeconfig(self.proxy.url.replace("http:", "https:")))
        return environment

    def _called(self, call: list[Any]) -> None:
        handler, name, old, new = call
        with self._lock:
            self.calls.append((handler, name, old, new))

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        with self._stack:
            self.operator_process.start()
            try:
                yield
            finally:
                try:
                    self.operator_process.stop()
                finally:
                    self.proxy.stop()

    # --- The objects.

    def create(self, name: str, value: int = 1, **more: Any) -> None:
        self.expected[name] = value
        body = {"apiVersion": f"{GROUP}/v1", "kind": "Parcel", "metadata": {"name": name}}
        self.cluster.create({**body, "spec": {"value": value, **more}})

    def change(self, name: str, value: int) -> None:
        self.expected[name] = value
        self.cluster.patch(KIND, name, {"spec": {"value": value}})

    def delete(self, name: str) -> None:
        self.expected.pop(name, None)
        self.deleted.add(name)
        self.cluster.delete(KIND, name)

    def annotate(self, name: str, annotations: dict[str, Any]) -> None:
        self.cluster.patch(KIND, name, {"metadata": {"annotations": annotations}})

    def is_converged(self) -> bool:
        bodies = {body["metadata"]["name"]: body for body in self.cluster.list(KIND)}
        if set(bodies) != set(self.expected):
            return False
        return all(self.is_handled(body) for body in bodies.values())

    def is_handled(self, body: Any) -> bool:
        value = self.expected[body["metadata"]["name"]]
        annotations = body["metadata"].get("annotations") or {}
        ours = [key for key in annotations if key.startswith(PREFIX)]
        status = body.get("status") or {}
        if ours != [LAST] or status.get("first") != value or status.get("second") != {"value": value}:
            return False
        if "parcel-large" in body["metadata"]["name"]:
            return True
        last: Any = json.loads(annotations[LAST])
        return bool(last["spec"] == body["spec"])

    def has_called(self, handler: str, name: str) -> bool:
        with self._lock:
            return any(call[:2] == (handler, name) for call in self.calls)

    def wait(self, holds: Callable[[], Any], seconds: float = CONVERGE) -> float:
        """How long it took; more than allowed, if it never came."""
        start = time.monotonic()
        step = 0.05 if len(self.expected) < 100 else 0.5
        while not holds() and time.monotonic() - start < seconds:
            time.sleep(step)
        return time.monotonic() - start

    # --- The check.

    def result(self, start: float) -> Result:
        result = Result(self.name)
        self.wait(self.is_converged, self.scenery.converge)
        result.seconds = time.monotonic() - start
        for _, holds in self.demands:
            self.wait(holds)
        names = set(self.expected)
        # Events of objects that were just deleted may still arrive: only what stays is a leak.
        for _ in range(2):
            self.wait(lambda: self.leaks(names) == [], 10)
            time.sleep(0.2)
            leaks = self.leaks(names)
            if not leaks:
                break
        result.exits = int(not self.operator_process.running)
        result.leaked = len(leaks)
        result.why += leaks
        unmet = [f"not so: {what}" for what, holds in self.demands if not holds()]
        result.why += unmet
        unhandled = []
        for body in self.cluster.list(KIND):
            name = body["metadata"]["name"]
            if name in self.deleted:
                result.stuck += 1
            elif not self.is_handled(body):
                body["metadata"].pop("managedFields", None)
                unhandled.append(f"{name} is not handled: {json.dumps(body)[:900]}")
        result.why += unhandled[:10]
        self._judge_calls(result)
        is_fine = not (unhandled or unmet)
        result.survived = is_fine and not (result.lost or result.exits or result.stuck or result.leaked)
        if not result.survived:
            result.why.append(self.operator_process.log)
        return result

    def _judge_calls(self, result: Result) -> None:
        with self._lock:
            calls = list(self.calls)
        last = {(who, whom): (new or {}).get("value") for who, whom, _, new in calls}
        for name, value in self.expected.items():
            for handler in ("first", "second"):
                if last.get((handler, name)) != value:
                    result.lost += 1
                    seen = last.get((handler, name))
                    result.why.append(f"{handler} has not seen {name} at {value}, but at {seen}")
        keys = [
            (who, whom, json.dumps(old, sort_keys=True), json.dumps(new, sort_keys=True))
            for who, whom, old, new in calls
        ]
        repeated = {key: count for key, count in collections.Counter(keys).items() if count > 1}
        result.doubles = sum(count - 1 for count in repeated.values())
        result.why += [f"{count} times: {key}" for key, count in repeated.items()][:20]

    def leaks(self, names: set[str]) -> list[str]:
        seen = self.operator_process.look()
        leaks = [f"daemon of {name}" for name in set(seen["daemons"]) - names]
        leaks += [f"two daemons of {name}" for name, count in seen["daemons"].items() if count > 1]
        leaks += [f"index entry of {name}" for name in set(seen["index"]) - names]
        return leaks + [f"memo of {name}" for name in set(seen["memos"]) - names]
