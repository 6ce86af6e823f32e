"""A real control plane whose audit log is read as the request log of the embedded API server."""

import contextlib
import dataclasses
import json
import pathlib
import tempfile
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kopf.testing import Cluster

from tests.support import controlplane

METHODS = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}
TESTS = "kopf-testing"
# Bodies only of what the tests look at: other objects are large, and there are many.
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {
            "level": "RequestResponse",
            "verbs": ["create", "update", "patch"],
            "resources": [
                {"group": "faults.example.com"},
                {"group": "coordination.k8s.io", "resources": ["leases"]},
            ],
        },
        {"level": "Metadata"},
    ],
}


@dataclasses.dataclass(frozen=True)
class Audited:
    """A request in the audit log; the same fields as those of `kopf.testing.Request`."""

    method: str
    path: str
    query: str
    agent: str
    user: str
    code: int
    json: Any
    version: int
    """The version of the object in the response; 0 without one."""

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> "Audited":
        url = urllib.parse.urlsplit(event["requestURI"])
        user = event.get("impersonatedUser") or event["user"]
        response = event.get("responseObject") or {}
        version = (response.get("metadata") or {}).get("resourceVersion")
        return cls(
            method=METHODS.get(event["verb"], "GET"),
            path=url.path,
            query=url.query,
            agent=event.get("userAgent", ""),
            user=user["username"],
            code=(event.get("responseStatus") or {}).get("code", 0),
            json=event.get("requestObject"),
            version=int(version) if version else 0,
        )


class AuditedPlane(controlplane.ControlPlane):
    """A control plane whose API server writes an audit log."""

    @property
    def audit_log(self) -> pathlib.Path:
        return self.folder / "audit.log"

    def _spawn(self, binary: pathlib.Path, *args: str) -> None:
        if binary.name == "kube-apiserver":
            policy = self.folder / "audit-policy.yaml"
            policy.write_text(json.dumps(POLICY))
            # Each event is written before the response is sent.
            audit = [f"--audit-policy-file={policy}", f"--audit-log-path={self.audit_log}"]
            args = (*args, *audit, "--audit-log-mode=blocking")
        super()._spawn(binary, *args)


class AuditedCluster(Cluster):
    """A running control plane, with the request log of the embedded API server."""

    def __init__(self, plane: AuditedPlane) -> None:
        super().__init__("kubeconfig", kubeconfig=plane.kubeconfig)
        self._log = plane.audit_log
        self._offset = self._log.stat().st_size
        self._audited: list[Audited] = []

    @property
    def requests(self) -> Any:
        """All requests so far. Accepted writes are in the order of their versions, as they were applied."""
        return self.requests_since(0)[1]

    def requests_since(self, count: int) -> tuple[int, Any]:
        """How many requests there have been, and those after the first so many."""
        with self._log.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        complete = data.rpartition(b"\n")[0]
        self._offset += len(complete) + (1 if complete else 0)
        self._audited += [Audited.of(json.loads(line)) for line in complete.splitlines()]
        others = [it for it in self._audited[count:] if not it.agent.startswith(TESTS)]
        return len(self._audited), _in_order(others)

    def call_all(self, requests: Sequence[tuple[str, str, Any]]) -> None:
        for method, path, body in requests:
            self.call(method, path, body)


def _in_order(requests: list[Audited]) -> list[Audited]:
    """The same requests; the accepted writes among them are sorted by their versions."""
    writes = [position for position, it in enumerate(requests) if it.method != "GET" and it.version]
    ordered = sorted((requests[position] for position in writes), key=lambda it: it.version)
    for position, request in zip(writes, ordered, strict=True):
        requests[position] = request
    return requests


@contextlib.contextmanager
def running() -> Iterator[AuditedPlane]:
    """Start a control plane with an audit log in a temporary folder."""
    assets = controlplane.find_assets()
    with tempfile.TemporaryDirectory(prefix="controlplane.", ignore_cleanup_errors=True) as folder:
        plane = AuditedPlane(pathlib.Path(folder), assets)
        try:
            plane.start()
            yield plane
        finally:
            plane.stop()
