"""Replicas of an operator as processes, each with its own link to the server, and the check of their history.

The history is the server's request log and the calls that the handlers have recorded.
"""

import collections
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from crds import ANYTHING, make_crd
from kopf.testing import Cluster
from severed_link import SeveredLink

SCRIPT = pathlib.Path(__file__).with_name("replica_operator.py")
GROUP = "faults.example.com"
LEASE = "parcels-operator"
SCHEMA = {"properties": {key: {"type": "object", **ANYTHING} for key in ("spec", "status")}}
CRD = make_crd(GROUP, "Parcel", SCHEMA, status=True)
HANDLERS = ("handle", "check")
# Seconds until there must be a leader, and everything is handled; on a busy machine, it takes much longer.
QUIET = 60.0


@dataclasses.dataclass(frozen=True)
class Step:
    """A step of a call, as the handler has recorded it."""

    at: float
    identity: str
    term: int
    what: str
    handler: str
    name: str
    number: int


class Replica:
    """One replica: a process, which is started again after its end, and its link."""

    def __init__(
        self,
        label: str,
        cluster: Cluster,
        folder: pathlib.Path,
        *,
        script: pathlib.Path = SCRIPT,
        server: str | None = None,
        options: Mapping[str, Any] = MappingProxyType({}),
        arguments: Sequence[str] = (),
    ) -> None:
        self.label, self._folder, self._script = label, folder, script
        self._options, self._arguments = options, arguments
        info = cluster.connection
        self._token = info.token
        self.link = SeveredLink(server or info.server)
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def identity(self) -> str:
        """The identity of the present process."""
        return f"{self.label}-{self.starts}"

    @property
    def log(self) -> str:
        """The log of its processes."""
        return self._log.read_text(errors="replace")

    @property
    def _log(self) -> pathlib.Path:
        return self._folder / f"{self.label}.log"

    def start(self) -> None:
        self.starts += 1
        options = {
            "server": self.link.url,
            "token": self._token,
            "identity": self.identity,
            "calls": str(self._folder / "calls.jsonl"),
            **self._options,
        }
        environment = {key: it for key, it in os.environ.items() if not key.startswith(("KOPF_", "KUBE"))}
        folders = [path for path in sys.path if pathlib.Path(path, "kopf").is_dir()]
        sources = [path for path in folders if "site-packages" not in path]
        if sources:
            environment["PYTHONPATH"] = os.pathsep.join(sources)
        environment |= {"REPLICA_OPTIONS": json.dumps(options), "HOME": str(self._folder)}
        command = [sys.executable, "-m", "kopf", "run", "--standalone", "-A", *self._arguments]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, str(self._script)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        """The id of the present process."""
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code of the present process; None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def signal(self, signum: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signum)

    def end(self, signum: int) -> None:
        """End the process by this signal."""
        if self._process is not None:
            self.signal(signum)
            self._process.wait(QUIET)

    def revive(self) -> None:
        """Start it again if it has ended."""
        if self._process is None or self._process.poll() is not None:
            self.start()

    def close(self) -> None:
        self.signal(signal.SIGCONT)
        self.end(signal.SIGKILL)
        self.link.close()


class Replicas:
    """The replicas on one cluster, and the objects that they handle. The options are those of `Replica`."""

    def __init__(self, cluster: Cluster, folder: pathlib.Path, count: int, **options: Any) -> None:
        cluster.apply(CRD)
        self.cluster, self._folder = cluster, folder
        self.numbers: dict[str, int] = {}
        self.all: list[Replica] = []
        for index in range(count):
            self.add(f"replica{index}", **options)

    def __enter__(self) -> "Replicas":
        return self

    def __exit__(self, *_: object) -> None:
        for replica in self.all:
            replica.close()

    def add(self, label: str, **options: Any) -> Replica:
        """Start one more replica."""
        replica = Replica(label, self.cluster, self._folder, **options)
        self.all.append(replica)
        return replica

    def create(self, name: str, **spec: Any) -> None:
        self.numbers[name] = 0
        body = {"apiVersion": f"{GROUP}/v1", "kind": "Parcel", "metadata": {"name": name}}
        self.cluster.create({**body, "spec": {"number": 0, **spec}})

    def change(self, name: str, **spec: Any) -> None:
        """Change the object, if the last change is handled: so each number is for one handling."""
        if self.is_handled(name):
            self.numbers[name] += 1
            self.cluster.patch("parcels", name, {"spec": {"number": self.numbers[name], **spec}})

    def is_handled(self, name: str) -> bool:
        body = self.cluster.get("parcels", name)
        status, annotations = body.get("status") or {}, body["metadata"].get("annotations") or {}
        is_current = all(status.get(handler) == self.numbers[name] for handler in HANDLERS)
        return is_current and [key for key in annotations if key.startswith("kopf.")] == [
            "kopf.zalando.org/last-handled-configuration"
        ]

    def wait(self, holds: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + QUIET
        while not holds():
            assert time.monotonic() < deadline, f"{what}\n{self.logs}"
            time.sleep(0.02)

    def wait_until_handled(self) -> None:
        for name in self.numbers:
            self.wait(lambda name=name: self.is_handled(name), f"{name} is not handled")

    @property
    def leader(self) -> Replica | None:
        """The replica that holds the Lease, if its process is the present one."""
        found = self.cluster.list("leases")
        holders = {
            lease["spec"].get("holderIdentity") for lease in found if lease["metadata"]["name"] == LEASE
        }
        return next((replica for replica in self.all if replica.identity in holders), None)

    def wait_for_leader(self) -> Replica:
        self.wait(lambda: self.leader, "there is no leader")
        leader = self.leader
        return leader if leader is not None else self.wait_for_leader()

    @property
    def steps(self) -> list[Step]:
        """The recorded steps, in the order of their times."""
        file = self._folder / "calls.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        return sorted((Step(*json.loads(line)) for line in lines), key=lambda step: step.at)

    def begun(self, handler: str, name: str) -> list[Step]:
        """The calls of the handler for the present number of the object."""
        number = self.numbers[name]
        return [
            step
            for step in self.steps
            if (step.what, step.handler, step.name, step.number) == ("begin", handler, name, number)
        ]

    @property
    def logs(self) -> str:
        return "\n".join(f"{replica.label}:\n{replica.log[-6000:]}" for replica in self.all)

    def violations(self) -> list[str]:
        """The violations of the rules of leadership, by the request log and the recorded calls."""
        requests = [it for it in self.cluster.requests if it.method != "GET" and 200 <= it.code < 300]
        return violations_of(requests, self.steps)


def violations_of(requests: Any, steps: list[Step]) -> list[str]:
    """The violations of the rules of leadership, by the accepted writes and the recorded calls."""
    return [*_in_leases(requests), *_in_writes(requests), *_in_calls(requests, steps)]


def _is_about_lease(request: Any) -> bool:
    """Other programs have other leases."""
    is_new = request.path.endswith("/leases") and request.json["metadata"]["name"] == LEASE
    return is_new or request.path.endswith(f"/leases/{LEASE}")


def _terms(requests: Any) -> Iterator[tuple[int, str, int]]:
    """The acquisitions and renewals: the position in the log, the writer, and the term."""
    for position, request in enumerate(requests):
        if _is_about_lease(request) and request.json["spec"].get("holderIdentity"):
            yield position, request.user, request.json["spec"].get("leaseTransitions", 0)


def _in_leases(requests: Any) -> Iterator[str]:
    holders: dict[int, str] = {}
    last = -1
    for _, user, term in _terms(requests):
        if holders.setdefault(term, user) != user:
            yield f"the term {term} has two holders: {holders[term]} and {user}"
        if term < last:
            yield f"the term {term} of {user} was written after the term {last}"
        last = term


def _in_writes(requests: Any) -> Iterator[str]:
    """Writes to one object are in the order of the terms of their writers."""
    terms: dict[str, int] = {}
    acquired = {position: (user, term) for position, user, term in _terms(requests)}
    latest: dict[str, tuple[int, str]] = {}
    for position, request in enumerate(requests):
        if position in acquired:
            user, term = acquired[position]
            terms[user] = term
        elif "/parcels/" in request.path and request.user in terms:
            name = request.path.split("/parcels/")[1].partition("/")[0]
            before, writer = latest.get(name, (-1, ""))
            if terms[request.user] < before:
                term = terms[request.user]
                yield f"{request.user} has written {name} in the term {term}, after {writer} in {before}"
            latest[name] = (terms[request.user], request.user)


def _written(requests: Any) -> dict[tuple[str, str, int], int]:
    """The terms in which outcomes were written.

    The progress is written last, by a patch of the body after that of the status. If the term ends
    in between, the handler is called again.
    """
    written: dict[tuple[str, str, int], int] = {}
    sent: dict[tuple[str, str], dict[str, Any]] = {}
    for request in requests:
        if "/parcels/" not in request.path:
            continue
        name, _, subresource = request.path.split("/parcels/")[-1].partition("/")
        if subresource:
            sent[request.user, name] = (
                (request.json.get("status") or {}) if isinstance(request.json, dict) else {}
            )
            continue
        status = sent.pop((request.user, name), {})
        for handler in HANDLERS:
            if handler in status and "term" in status:
                written.setdefault((handler, name, status[handler]), status["term"])
    return written


def _in_calls(requests: Any, steps: list[Step]) -> Iterator[str]:
    """Calls begin in the order of the terms, and finished handlers are not called again."""
    written = _written(requests)
    ends: collections.Counter[tuple[str, str, int, int]] = collections.Counter()
    last = -1
    for step in steps:
        key = (step.handler, step.name, step.number)
        if step.what == "begin" and step.term < last:
            yield f"{step.identity} has called {key} in its term {step.term}, after a call in the term {last}"
        if step.what == "begin" and written.get(key, step.term) < step.term:
            yield f"{step.identity} has called {key} in the term {step.term}: written in {written[key]}"
        if step.what == "end":
            ends[*key, step.term] += 1
        last = max(last, step.term)
    yield from (f"{key} has ended {count} times" for key, count in ends.items() if count > 1)
