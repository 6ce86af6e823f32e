"""One run: an operator with handlers of all kinds, objects, changes, and what has come of them.

It owns the common check at the end: nothing lost, nothing doubled, nothing stuck, nothing leaked, no exit.
"""

import collections
import contextlib
import dataclasses
import gc
import json
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import interposer
import kopf
from kopf.testing import Cluster, Operator

GROUP = "faults.example.com"
KIND = "parcels"
PREFIX = "kopf.zalando.org/"
LAST = PREFIX + "last-handled-configuration"
DEFINITION = f"""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {KIND}.{GROUP}}}
spec:
  group: {GROUP}
  scope: Namespaced
  names: {{plural: {KIND}, singular: parcel, kind: Parcel, listKind: ParcelList}}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {{status: {{}}}}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              x-kubernetes-preserve-unknown-fields: true
              properties: {{strict: {{type: integer}}}}
            status: {{type: object, x-kubernetes-preserve-unknown-fields: true}}
"""
CONVERGE = 20.0


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


class Theatre:
    """One operator, one proxy, and a few objects."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        info = cluster.connection
        context = ssl._create_unverified_context() if info.server.startswith("https") else None
        if context is not None and info.certificate_path:
            context.load_cert_chain(info.certificate_path, info.private_key_path)
        self.proxy = interposer.Interposer(info.server, info.as_http_headers(), context)
        self.calls: list[tuple[str, str, Any, Any]] = []
        self.daemons: collections.Counter[str] = collections.Counter()
        self.index: Any = None
        self.memos: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self.token = "first"
        self.logins = 0
        self.wanted: dict[str, int] = {}
        self.deleted: set[str] = set()
        self.failure: BaseException | None = None
        self.operator: Operator | None = None
        self.slowness = 0.0
        self._lock = threading.Lock()

    # --- The operator.

    def declare(self) -> None:
        def told(handler: str, name: str, old: Any, new: Any) -> None:
            with self._lock:
                self.calls.append((handler, name, (old or {}).get("spec"), (new or {}).get("spec")))

        @kopf.on.login()
        def login(**_: Any) -> Any:
            self.logins += 1
            return kopf.ConnectionInfo(server=self.proxy.url, token=self.token)

        @kopf.on.create(KIND, id="first")
        @kopf.on.update(KIND, id="first")
        def first(name: str, memo: Any, old: Any, new: Any, patch: Any, spec: Any, **_: Any) -> None:
            self.memos[name] = memo
            told("first", name, old, new)
            patch.status["first"] = spec.get("value")
            if name == "picky":
                patch.spec["strict"] = "not a number"
            time.sleep(self.slowness)

        @kopf.on.create(KIND, id="second")
        @kopf.on.update(KIND, id="second")
        def second(name: str, old: Any, new: Any, spec: Any, **_: Any) -> Any:
            told("second", name, old, new)
            return {"value": spec.get("value")}

        @kopf.on.delete(KIND, id="farewell")
        def farewell(name: str, **_: Any) -> None:
            told("farewell", name, None, None)

        @kopf.daemon(KIND, id="companion", cancellation_timeout=1)
        async def companion(name: str, stopped: Any, **_: Any) -> None:
            self.daemons[name] += 1
            try:
                await stopped.wait()
            finally:
                self.daemons[name] -= 1

        @kopf.index(KIND, id="known")
        def known(name: str, **_: Any) -> Any:
            return {name: 1}

        @kopf.on.event(KIND, id="peek")
        def peek(known: Any, **_: Any) -> None:
            self.index = known

    def settings(self) -> Any:
        settings = kopf.OperatorSettings()
        settings.networking.error_backoffs = [0.1, 0.2, 0.4]
        settings.networking.request_timeout = 3
        settings.queueing.error_delays = [0.1, 0.2, 0.5, 1.0]
        settings.watching.inactivity_timeout = 1.5
        settings.persistence.consistency_timeout = 1.0
        settings.background.cancellation_polling = 1.0
        settings.posting.enabled = False
        return settings

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self.operator = Operator(self.cluster, self.declare, settings=self.settings())
        self.operator.start()
        try:
            yield
        finally:
            try:
                self.operator.stop()
            except BaseException as e:
                self.failure = e
            self.proxy.stop()

    # --- The objects.

    def create(self, name: str, value: int = 1, **more: Any) -> None:
        self.wanted[name] = value
        body = {"apiVersion": f"{GROUP}/v1", "kind": "Parcel", "metadata": {"name": name}}
        self.cluster.create({**body, "spec": {"value": value, **more}})

    def change(self, name: str, value: int) -> None:
        self.wanted[name] = value
        self.cluster.patch(KIND, name, {"spec": {"value": value}})

    def delete(self, name: str) -> None:
        self.wanted.pop(name, None)
        self.deleted.add(name)
        self.cluster.delete(KIND, name)

    def annotate(self, name: str, annotations: dict[str, Any]) -> None:
        self.cluster.patch(KIND, name, {"metadata": {"annotations": annotations}})

    def is_converged(self) -> bool:
        bodies = {body["metadata"]["name"]: body for body in self.cluster.list(KIND)}
        if set(bodies) != set(self.wanted):
            return False
        return all(self.is_handled(body) for body in bodies.values())

    def is_handled(self, body: Any) -> bool:
        value = self.wanted[body["metadata"]["name"]]
        annotations = body["metadata"].get("annotations") or {}
        ours = [key for key in annotations if key.startswith(PREFIX)]
        status = body.get("status") or {}
        if ours != [LAST] or status.get("first") != value or status.get("second") != {"value": value}:
            return False
        if "parcel-large" in body["metadata"]["name"]:
            return True
        last: Any = json.loads(annotations[LAST])
        return bool(last["spec"] == body["spec"])

    def wait(self, holds: Callable[[], Any], seconds: float = CONVERGE) -> float:
        """How long it took; more than allowed, if it never came."""
        start = time.monotonic()
        while not holds() and time.monotonic() - start < seconds:
            time.sleep(0.05)
        return time.monotonic() - start

    # --- The check.

    def result(self, start: float) -> Result:
        result = Result(self.name)
        self.wait(self.is_converged)
        result.seconds = time.monotonic() - start
        names = set(self.wanted)
        self.wait(lambda: self.leaks(names) == [], 5)
        assert self.operator is not None
        result.exits = int(not self.operator.running)
        leaks = self.leaks(names)
        result.leaked = len(leaks)
        result.why += leaks
        for body in self.cluster.list(KIND):
            name = body["metadata"]["name"]
            if name in self.deleted:
                result.stuck += 1
            elif not self.is_handled(body):
                body["metadata"].pop("managedFields", None)
                result.why.append(f"{name} is not handled: {json.dumps(body)[:900]}")
        for name, value in self.wanted.items():
            for handler in ("first", "second"):
                seen = [new for who, whom, _, new in self.calls if (who, whom) == (handler, name)]
                if not seen or (seen[-1] or {}).get("value") != value:
                    result.lost += 1
                    result.why.append(f"{handler} has not seen {name} at {value}: {seen[-1:]}")
        keys = [
            (who, whom, json.dumps(old, sort_keys=True)[:300], json.dumps(new, sort_keys=True)[:300])
            for who, whom, old, new in self.calls
        ]
        repeated = {key: count for key, count in collections.Counter(keys).items() if count > 1}
        result.doubles = sum(count - 1 for count in repeated.values())
        result.why += [f"{count} times: {key}" for key, count in repeated.items()]
        is_handled = not any("is not handled" in why for why in result.why)
        result.survived = is_handled and not (result.lost or result.exits or result.stuck or result.leaked)
        return result

    def leaks(self, names: set[str]) -> list[str]:
        gc.collect()
        running = {name for name, count in self.daemons.items() if count > 0}
        doubled = {name for name, count in self.daemons.items() if count > 1}
        indexed = set(self.index or ())
        leaks = [f"daemon of {name}" for name in running - names] + [f"two daemons of {it}" for it in doubled]
        leaks += [f"index entry of {name}" for name in indexed - names]
        return leaks + [f"memo of {name}" for name in set(self.memos) - names]
