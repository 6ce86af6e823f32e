"""Load on the cluster: creates, changes and deletes objects, and watches their states, with any
contestant."""

from __future__ import annotations

import base64
import concurrent.futures
import functools
import http.client
import json
import select
import ssl
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from typing import Any

GROUP = "bench.example.com"
BENCHES = f"/apis/{GROUP}/v1/namespaces/default/benches"
MAPS = "/api/v1/namespaces/default/configmaps"
EVENTS = "/api/v1/namespaces/default/events"
LAST_HANDLED = "kopf.zalando.org/last-handled-configuration"
CONNECTIONS = 16
MERGE = "application/merge-patch+json"

Condition = Callable[[Mapping[str, Any]], bool]


def crd() -> dict[str, Any]:
    """Of the objects of the workloads: any spec, any status."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    version = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"benches.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": "Bench", "plural": "benches", "singular": "bench"},
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }


# No floats: API servers rewrite 1.0 as 1, and a comparison of the texts would show a change.
def spec(number: int, revision: int, size: int = 2048) -> dict[str, Any]:
    """Like what custom resources have, of about so many bytes."""
    result: dict[str, Any] = {
        "rev": revision,
        "replicas": number % 7,
        "image": "registry.example.com/app:v1.2",
    }
    items: list[dict[str, Any]] = []
    used = len(json.dumps(result))
    while used < size:
        index = len(items)
        items.append(
            {
                "name": f"part-{index}",
                "port": 8000 + index,
                "enabled": index % 2 == 0,
                "env": [{"name": "LEVEL", "value": "info"}, {"name": "REGION", "value": "north"}],
                "limits": {"cpu": "100m", "memory": "128Mi"},
            }
        )
        used += len(json.dumps(items[-1])) + 2
    return {**result, "items": items}


def bench(name: str, number: int, revision: int = 0, *, handled: bool = False) -> dict[str, Any]:
    """An object of the workloads; as if it had been handled before, if so wished."""
    body: dict[str, Any] = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Bench",
        "metadata": {"name": name},
        "spec": spec(number, revision),
    }
    if handled:
        essence = json.dumps({"spec": body["spec"]}, separators=(",", ":"))
        body["metadata"]["annotations"] = {LAST_HANDLED: essence + "\n"}
    return body


def is_updated(revision: int, body: Mapping[str, Any]) -> bool:
    """Whether the object has this revision, and it was handled."""
    return bool(body["spec"]["rev"] == revision) and is_noted(body)


def is_noted(body: Mapping[str, Any]) -> bool:
    """Whether the present state is on the object as the last handled one."""
    text = body["metadata"].get("annotations", {}).get(LAST_HANDLED)
    return text is not None and json.loads(text)["spec"]["rev"] == body["spec"]["rev"]


def is_handled(body: Mapping[str, Any]) -> bool:
    """The same, and the result of the handler is there."""
    return "bench_create" in body.get("status", {}) and is_noted(body)


class Client:
    """Requests over connections that are kept."""

    def __init__(self, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> None:
        url = urllib.parse.urlsplit(cluster["server"])
        self._host, self._port = url.hostname or "", url.port
        self._tls = None
        if url.scheme == "https":
            data = cluster.get("certificate-authority-data")
            authority = base64.b64decode(data).decode() if data else None
            self._tls = ssl.create_default_context(
                cafile=cluster.get("certificate-authority"), cadata=authority
            )
            if "client-certificate-data" in user:
                with tempfile.NamedTemporaryFile() as pem:
                    pem.write(base64.b64decode(user["client-certificate-data"]))
                    pem.write(base64.b64decode(user["client-key-data"]))
                    pem.flush()
                    self._tls.load_cert_chain(pem.name)
        self._headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
        self._idle: list[http.client.HTTPConnection] = []

    def connect(self) -> http.client.HTTPConnection:
        """A separate connection."""
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=300)
        return http.client.HTTPSConnection(self._host, self._port, timeout=300, context=self._tls)

    def open(self, connection: http.client.HTTPConnection, path: str) -> http.client.HTTPResponse:
        """An answer which is to be read as it comes."""
        connection.request("GET", path, headers=self._headers)
        return connection.getresponse()

    def call(
        self, method: str, path: str, body: Any = None, type: str = "application/json"
    ) -> tuple[int, bytes]:
        """The status and the answer."""
        text = None if body is None else json.dumps(body).encode()
        headers = {**self._headers, "Content-Type": type, "Accept": "application/json"}
        while True:
            try:
                connection, kept = self._idle.pop(), True
            except IndexError:
                connection, kept = self.connect(), False
            try:
                connection.request(method, path, text, headers)
                with connection.getresponse() as answer:
                    status, content = answer.status, answer.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                if not kept:
                    raise
            else:
                self._idle.append(connection)
                return status, content

    def close(self) -> None:
        """Close what is kept."""
        while self._idle:
            self._idle.pop().close()

    def ok(self, method: str, path: str, body: Any = None, type: str = "application/json") -> bytes:
        """The answer, or an error; when the server is overloaded, later."""
        for _ in range(50):
            status, answer = self.call(method, path, body, type)
            if 200 <= status < 300:
                return answer
            if status != 429 and status < 500:
                break
            time.sleep(0.1)
        raise RuntimeError(f"{method} {path}: {status}: {answer[:500]!r}")

    def define(self) -> None:
        """Create the CRD, and wait until it is served."""
        self.ok("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd())
        for _ in range(100):
            if self.call("GET", BENCHES)[0] == 200:
                return
            time.sleep(0.1)
        raise RuntimeError("The CRD is not served.")

    def each(self, count: int, work: Callable[[int], object], start: int = 0) -> float:
        """Do it for all numbers over several connections; return the seconds that it took."""
        before = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as pool:
            for _ in pool.map(work, range(start, count)):
                pass
        return time.monotonic() - before

    def create(self, count: int, *, prefix: str = "obj", handled: bool = False, start: int = 0) -> float:
        """Create objects of these numbers."""

        def one(i: int) -> bytes:
            return self.ok("POST", BENCHES, bench(f"{prefix}-{i:06}", i, handled=handled))

        return self.each(count, one, start)

    def create_maps(self, count: int, size: int = 512) -> float:
        """Create config maps."""

        def one(i: int) -> bytes:
            meta = {"name": f"obj-{i:06}"}
            data = {"rev": "0", "payload": "x" * size}
            return self.ok(
                "POST", MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
            )

        return self.each(count, one)

    def update(self, count: int, revision: int) -> float:
        """Give the objects a revision."""
        body = {"spec": {"rev": revision}}
        return self.each(count, lambda i: self.ok("PATCH", f"{BENCHES}/obj-{i:06}", body, MERGE))

    def update_maps(self, count: int, revision: int) -> float:
        """The same with the config maps."""
        body = {"data": {"rev": str(revision)}}
        return self.each(count, lambda i: self.ok("PATCH", f"{MAPS}/obj-{i:06}", body, MERGE))

    def post(self, name: str, number: int) -> tuple[float, float]:
        """Create one object; return when it was sent, and when the first byte of the answer was there.
        Neither is the making of the body timed nor the reading of the answer; no other thread is at work."""
        text = json.dumps(bench(name, number)).encode()
        connection = self._idle.pop() if self._idle else self.connect()
        headers = {**self._headers, "Content-Type": "application/json", "Accept": "application/json"}
        sent = time.time()
        connection.request("POST", BENCHES, text, headers)
        select.select([connection.sock], [], [])
        answered = time.time()
        with connection.getresponse() as answer:
            answer.read()
        self._idle.append(connection)
        if answer.status != 201:
            raise RuntimeError(f"POST {BENCHES}: {answer.status}")
        return sent, answered

    def until(self, name: str, condition: Condition) -> float:
        """Look at one object every five milliseconds until it is as expected; return when it was."""
        for _ in range(2000):
            time.sleep(0.005)
            if condition(json.loads(self.ok("GET", f"{BENCHES}/{name}"))):
                return time.time()
        raise RuntimeError(f"{name} was not handled.")

    def delete(self, count: int, *, prefix: str) -> float:
        """Delete objects without finalizers."""
        return self.each(count, lambda i: self.ok("DELETE", f"{BENCHES}/{prefix}-{i:06}"))

    def clear(self) -> None:
        """Delete all objects and events, with or without finalizers."""
        self.ok("DELETE", BENCHES)
        for _ in range(50):
            found = [item["metadata"] for item in json.loads(self.ok("GET", BENCHES))["items"]]
            if not found:
                break
            self.each(len(found), functools.partial(self._delete, found))
        self.ok("DELETE", EVENTS)

    def _delete(self, found: list[dict[str, Any]], number: int) -> None:
        meta = found[number]
        path = f"{BENCHES}/{meta['name']}"
        if meta.get("finalizers"):
            self.call("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
        self.call("DELETE", path)


class Watching:
    """Sees when objects have come to be as expected; from its creation on."""

    def __init__(self, client: Client, condition: Condition, count: int, prefix: str = "obj-") -> None:
        self._client, self._condition, self._count, self._prefix = client, condition, count, prefix
        self.times: dict[str, float] = {}
        self._done = threading.Event()
        self._failure: BaseException | None = None
        # Nothing is as expected yet: all that is to be known is where to begin.
        self._beginning = str(
            json.loads(client.ok("GET", f"{BENCHES}?limit=1"))["metadata"]["resourceVersion"]
        )
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def wait(self, limit: float = 300.0) -> dict[str, float]:
        """The times by the names, when all have come."""
        if not self._done.wait(limit):
            raise RuntimeError(f"In {limit:g} s, {len(self.times)} of {self._count} objects were handled.")
        if self._failure is not None:
            raise self._failure
        return self.times

    def _list(self) -> str:
        listing = json.loads(self._client.ok("GET", BENCHES))
        self._take(listing["items"])
        return str(listing["metadata"]["resourceVersion"])

    def _take(self, items: Iterable[Mapping[str, Any]]) -> None:
        for item in items:
            name = item["metadata"]["name"]
            if name not in self.times and name.startswith(self._prefix) and self._condition(item):
                self.times[name] = time.time()

    def _follow(self) -> None:
        try:
            version = self._beginning
            while len(self.times) < self._count:
                version = self._watch(version) or self._list()
        except BaseException as error:
            self._failure = error
        self._done.set()

    # The server may end a watch at any moment; if it has forgotten the version, all is listed again.
    def _watch(self, version: str) -> str | None:
        connection = self._client.connect()
        try:
            with self._client.open(connection, f"{BENCHES}?watch=true&resourceVersion={version}") as answer:
                for line in answer:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        return None
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "DELETED":
                        self._take([event["object"]])
                    if len(self.times) >= self._count:
                        break
            return version
        finally:
            connection.close()
