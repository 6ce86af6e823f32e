"""One run of one scenario under one Kopf: the actions, waits and recordings that the steps use as `s`.

Steps assert nothing: they act, wait and record. A state that is not reached in time ends the run, which is
recorded.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import os
import pathlib
import re
import secrets
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import yaml

from . import crds, process
from .cluster import BUILTIN_KINDS, JSON, JSON_PATCH, MERGE_PATCH, ApiError, Cluster, Kind, Object
from .proxy import OPERATOR_TOKEN, Loop, Proxy
from .scenario import Scenario

OPERATOR_MODULES = pathlib.Path(__file__).resolve().parents[1] / "operatorlib"
OPENSSL = [
    "openssl",
    "req",
    "-x509",
    "-newkey",
    "rsa:2048",
    "-nodes",
    "-days",
    "30",
    "-subj",
    "/CN=127.0.0.1",
]
# Namespaced kinds whose objects can remain after a run, in addition to those of the scenario.
CLEANED = ("pods", "configmaps", "secrets", "jobs", "deployments")
CLUSTER_WIDE = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations", "clusterkopfpeerings")
# Seconds without requests, calls and log lines, after which an operator counts as idle.
QUIET = 0.8
TIMEOUT = 20
IDLE_TIMEOUT = 40
# Variables of the environment that would change an operator.
REMOVED = ("KOPF_", "PYTHON", "KUBERNETES_", "VIRTUAL_ENV")


class StepFailed(Exception):
    """A state was not reached in time, so that the other steps make no sense."""


class Session:
    """One run of a scenario, with a separate namespace, proxy and folder."""

    def __init__(
        self,
        cluster: Cluster,
        loop: Loop,
        scenario: Scenario,
        python: str,
        workdir: pathlib.Path,
        cancelled: threading.Event,
    ) -> None:
        self.cluster, self.scenario = cluster, scenario
        self.token = "d" + secrets.token_hex(4)
        self.ns = f"{self.token}-ns"
        self.group = f"{self.token}.{crds.SHARED_GROUP}" if scenario.own_group else crds.SHARED_GROUP
        self.workdir = pathlib.Path(tempfile.mkdtemp(prefix=f"{scenario.name}-", dir=workdir))
        self._python = python
        self._cancelled = cancelled
        self._trace_file = self.workdir / "trace.jsonl"
        self._trace_file.touch()
        self._proxy = Proxy(cluster.endpoint, loop).start()
        self._operators: dict[str, process.OperatorProcess] = {}
        self._steps: list[Object] = []
        self._observations: list[list[Any]] = []
        self._gaps: dict[str, list[float]] = {}
        self._exits: list[list[Any]] = []
        self._acted = time.monotonic()
        self._namespaces = [self.ns]
        self._own_crds: list[str] = []

    # --- for the harness

    def open(self) -> None:
        self.request("POST", "/api/v1/namespaces", {"metadata": {"name": self.ns}})
        if self.scenario.own_group and self.scenario.installed:
            self.install_crds(*self.scenario.crds)

    def close(self) -> None:
        for operator in self._operators.values():
            operator.kill()
        self._proxy.stop()
        self._clean()

    def _clean(self) -> None:
        """Delete the objects of the run, without waiting."""
        for plural in {*self.scenario.crds, *CLEANED}:
            kind = self.kind(plural)
            if kind.namespaced or self.scenario.own_group:
                for place in self._places(kind):
                    self._delete_all(kind, place)
        for name in self._own_crds:
            self._try("DELETE", BUILTIN_KINDS["customresourcedefinitions"].path(name=name))
        for plural in CLUSTER_WIDE:
            kind = BUILTIN_KINDS[plural]
            for body in self.cluster.items(kind.path()):
                if self.token in body["metadata"]["name"]:
                    self._try("DELETE", kind.path(name=body["metadata"]["name"]))
        for namespace in self._namespaces:
            self._try("DELETE", BUILTIN_KINDS["namespaces"].path(name=namespace))

    def _delete_all(self, kind: Kind, namespace: str | None) -> None:
        for body in self.cluster.items(kind.path(namespace)):
            path = kind.path(namespace, body["metadata"]["name"])
            self._try("DELETE", path, {"gracePeriodSeconds": 0})
            if body["metadata"].get("finalizers"):
                self._try("PATCH", path, {"metadata": {"finalizers": None}}, MERGE_PATCH)

    def _try(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> None:
        with contextlib.suppress(ApiError):
            self.cluster.request(method, path, body, content_type)

    def _places(self, kind: Kind) -> Iterable[str | None]:
        return self._namespaces if kind.namespaced else [None]

    def recording(self, failure: str | None = None) -> Object:
        """Everything that was recorded, as JSON can contain it."""
        return {
            "names": {
                "ns": self.ns,
                "group": self.group,
                "token": self.token,
                "workdir": str(self.workdir),
                "folder": str(self.scenario.folder),
                "proxy": self._proxy.url,
            },
            "failure": failure,
            "traces": self.traces(),
            "steps": self._steps,
            "observations": self._observations,
            "gaps": self._gaps,
            "exits": self._exits,
            "logs": {name: self._log(name) for name in self._operators},
            "requests": copy.deepcopy(self._proxy.records),
        }

    # --- objects

    def kind(self, plural: str) -> Kind:
        if plural in BUILTIN_KINDS:
            return BUILTIN_KINDS[plural]
        spec = next(crds.load(self.group, [plural]))["spec"]
        is_namespaced = spec["scope"] == "Namespaced"
        return Kind(f"{self.group}/v1", spec["names"]["kind"], plural, namespaced=is_namespaced)

    def install_crds(self, *plurals: str) -> None:
        crds.install(self.cluster, self.group, plurals)
        self._acted = time.monotonic()
        for plural in plurals:
            if (name := f"{plural}.{self.group}") not in self._own_crds:
                self._own_crds.append(name)

    def remove_crd(self, plural: str) -> None:
        path = BUILTIN_KINDS["customresourcedefinitions"].path(name=f"{plural}.{self.group}")
        self.request("DELETE", path)
        self.wait(lambda: self.cluster.find(path) is None, f"the CRD of {plural} is deleted")

    def namespace(self, name: str) -> None:
        """Create another namespace for the run."""
        self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        self._namespaces.append(name)

    def request(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> Object:
        self._acted = time.monotonic()
        return self.cluster.request(method, path, body, content_type)

    def create(
        self,
        plural: str,
        name: str,
        spec: Object | None = None,
        *,
        ns: str | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        finalizers: Sequence[str] | None = None,
        status: Object | None = None,
        body: Object | None = None,
    ) -> None:
        """Create an object; if its status is a subresource, a second request sets it."""
        kind = self.kind(plural)
        meta = {"name": name, "labels": labels, "annotations": annotations, "finalizers": finalizers}
        created = {
            **(body or {}),
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {key: value for key, value in meta.items() if value is not None},
        }
        created |= {
            key: value for key, value in {"spec": spec, "status": status}.items() if value is not None
        }
        response = self.request("POST", kind.path(ns or self.ns), created)
        if status is not None and "status" not in response:
            self.patch(plural, name, {"status": status}, sub="status", ns=ns)

    def patch(
        self, plural: str, name: str, body: Any, *, ns: str | None = None, sub: str | None = None
    ) -> None:
        """Apply a merge patch, or a JSON patch if it is a list."""
        path = self.kind(plural).path(ns or self.ns, name, sub)
        self.request("PATCH", path, body, JSON_PATCH if isinstance(body, list) else MERGE_PATCH)

    def delete(
        self, plural: str, name: str, *, ns: str | None = None, propagation: str | None = None
    ) -> None:
        options: Object = {"propagationPolicy": propagation} if propagation else {}
        if plural == "pods":
            options["gracePeriodSeconds"] = 0
        self.request("DELETE", self.kind(plural).path(ns or self.ns, name), options or None)

    def get(self, plural: str, name: str, ns: str | None = None) -> Object | None:
        return self.cluster.find(self.kind(plural).path(ns or self.ns, name))

    def attempt(self, label: str, action: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        """Call an action that the API server can reject, and record the response."""
        try:
            action(*args, **kwargs)
            self.observe(label, "accepted")
        except ApiError as error:
            self.observe(label, [error.status, error.reason, error.message])

    # --- operators

    def start(
        self,
        *files: str,
        name: str = "op",
        args: Sequence[object] = (),
        scope: Sequence[str] | None = None,
        standalone: bool = True,
        wait: bool = True,
        env: Mapping[str, str] | None = None,
        log_format: str | None = "json",
        watch: Sequence[str] | None = None,
    ) -> None:
        """Start an operator in the namespace of the run, by default `handlers.py`; wait for its watches."""
        command = [self._python, "-m", "kopf", "run"]
        command += [f"--log-format={log_format}"] if log_format else []
        command += ["--standalone"] if standalone else []
        command += ["--namespace", self.ns] if scope is None else scope
        command += map(str, args)
        command += [str(self.scenario.folder / file) for file in files or ("handlers.py",)]
        if name in self._operators and self._operators[name].is_running:
            raise StepFailed(f"operator {name} is still running")
        opened = self.watches
        self._acted = time.monotonic()
        environment = self._environment(name, env or {})
        self._operators[name] = process.OperatorProcess(
            command, environment, self.scenario.folder, self._log_file(name)
        )
        if wait:
            self.wait_watch(*(self.scenario.watch if watch is None else watch), since=opened, name=name)

    def _environment(self, name: str, extra: Mapping[str, str]) -> dict[str, str]:
        inherited = {
            key: value for key, value in os.environ.items() if not key.startswith(REMOVED) and key != "POD_ID"
        }
        return {
            **inherited,
            "KUBECONFIG": str(self._kubeconfig(name)),
            "HOME": str(self.workdir),
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join([str(OPERATOR_MODULES), str(self.scenario.folder)]),
            # Switch off deliberate differences to Kopf 1.45.
            "KOPF_COMPAT": "1.45",
            "TRACE_FILE": str(self._trace_file),
            "DIFF_OPERATOR": name,
            "DIFF_GROUP": self.group,
            "DIFF_NAMESPACE": self.ns,
            "DIFF_TOKEN": self.token,
            "DIFF_API": self._proxy.url,
            "DIFF_API_TOKEN": OPERATOR_TOKEN,
            **extra,
        }

    def _kubeconfig(self, name: str) -> pathlib.Path:
        context = {"cluster": "diff", "user": "diff", "namespace": self.ns}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "diff",
            "clusters": [{"name": "diff", "cluster": {"server": self._proxy.url}}],
            "users": [{"name": "diff", "user": {"token": OPERATOR_TOKEN}}],
            "contexts": [{"name": "diff", "context": context}],
        }
        path = self.workdir / f"{name}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    def stop(self, name: str = "op") -> None:
        """Stop the operator gracefully (SIGTERM)."""
        self._record_exit(name, self._operators[name].stop())

    def kill(self, name: str = "op") -> None:
        """Kill the operator (SIGKILL)."""
        self._record_exit(name, self._operators[name].kill())

    def _record_exit(self, name: str, code: int | str | None) -> None:
        self._exits.append([name, code])
        self._acted = time.monotonic()

    def certificate(self) -> dict[str, str]:
        """A self-signed certificate for 127.0.0.1, as environment variables for a webhook server."""
        certificate, key = self.workdir / "webhook.crt", self.workdir / "webhook.key"
        subprocess.run(
            [*OPENSSL, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
            check=True,
            capture_output=True,
            timeout=60,
        )
        return {"WEBHOOK_CERT": str(certificate), "WEBHOOK_KEY": str(key)}

    @staticmethod
    def free_port() -> int:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            return int(sock.getsockname()[1])

    # --- waiting

    def wait(self, condition: Callable[[], Any], state: str, timeout: float = TIMEOUT) -> None:
        """Wait until the condition is true; `StepFailed` if it is not in time, or if the run is cancelled."""
        reached = process.poll(lambda: self._cancelled.is_set() or condition(), timeout)
        if self._cancelled.is_set():
            raise StepFailed("the run is cancelled")
        if not reached:
            raise StepFailed(f"not in {timeout} s: {state}")

    def sleep(self, seconds: float) -> None:
        if self._cancelled.wait(seconds):
            raise StepFailed("the run is cancelled")

    @property
    def watches(self) -> int:
        """The number of watches that have been opened."""
        return len(self._proxy.watches)

    def wait_watch(self, *plurals: str, since: int = 0, name: str = "op") -> None:
        """Wait until the operator has opened watches of these kinds, after the first `since` of the run."""
        roots = {plural: self.kind(plural).path().removesuffix(plural) for plural in plurals}

        def are_opened() -> bool:
            operator = self._operators[name]
            if not operator.is_running:
                raise StepFailed(f"operator {name} exited with {operator.code} instead of running")
            paths = [target.split("?")[0] for target in self._proxy.watches[since:]]
            return all(
                any(path.startswith(root) and path.endswith(f"/{plural}") for path in paths)
                for plural, root in roots.items()
            )

        self.wait(are_opened, f"watching {', '.join(plurals)}", IDLE_TIMEOUT)

    def traces(self, fn: str | None = None, name: str | None = None) -> list[Object]:
        """The recorded calls, of one handler or for one object."""
        # The last line is incomplete or empty.
        lines = self._trace_file.read_text(encoding="utf-8").split("\n")[:-1]
        return [
            call
            for call in map(json.loads, lines)
            if fn in (None, call["fn"]) and name in (None, call.get("name"))
        ]

    def wait_trace(self, fn: str, n: int = 1, name: str | None = None) -> None:
        """Wait for that many calls of a handler."""
        state = f"{n} calls of {fn} for {name or 'any object'}"
        self.wait(lambda: len(self.traces(fn, name)) >= n, state)

    def wait_gone(self, plural: str, name: str, *, timeout: float = TIMEOUT) -> None:
        self.wait(lambda: self.get(plural, name) is None, f"{plural}/{name} is gone", timeout)

    def wait_object(self, plural: str, name: str, condition: Callable[[Object], Any]) -> None:
        def holds() -> bool:
            body = self.get(plural, name)
            return body is not None and bool(condition(body))

        self.wait(holds, f"the expected state of {plural}/{name}")

    def wait_log(self, pattern: str, name: str = "op") -> None:
        self.wait(lambda: re.search(pattern, self._log(name)), f"the log contains {pattern!r}")

    def quiesce(self, quiet: float = QUIET) -> None:
        """Wait until there are no requests, calls and log lines for `quiet` seconds."""
        changed = time.monotonic()
        sizes: list[int] | None = None

        def is_idle() -> bool:
            nonlocal changed, sizes
            now = time.monotonic()
            files = [self._trace_file, *map(self._log_file, self._operators)]
            current = [file.stat().st_size for file in files]
            if current != sizes or self._proxy.in_flight:
                sizes, changed = current, now
            return now - max(changed, self._proxy.last_activity, self._acted) >= quiet

        self.wait(is_idle, f"{quiet} s without activity", IDLE_TIMEOUT)

    # --- recording

    def settle(self, label: str, quiet: float = QUIET) -> None:
        """Wait until the operator is idle, then record the objects."""
        self.quiesce(quiet)
        self.snapshot(label)

    def snapshot(self, label: str) -> None:
        """Record the objects and the Kubernetes events as they are."""
        objects = {}
        for plural in self.scenario.kinds:
            kind = self.kind(plural)
            # Other runs have cluster-wide objects, too.
            is_separate = kind.namespaced or kind.api_version.startswith(self.token)
            for place in self._places(kind):
                for body in self.cluster.items(kind.path(place)):
                    name = body["metadata"]["name"]
                    if is_separate or self.token in name:
                        objects[f"{plural}/{place}/{name}" if place else f"{plural}/{name}"] = body
        events = [
            event
            for place in self._namespaces
            for event in self.cluster.items(BUILTIN_KINDS["events"].path(place))
        ]
        self._steps.append({"label": label, "objects": objects, "events": events})

    def observe_exit(self, label: str, name: str = "op") -> None:
        """Wait until the operator exits, and record its exit code and the kind of its last log line."""
        operator = self._operators[name]
        self.wait(lambda: not operator.is_running, f"operator {name} exits")
        self._record_exit(name, operator.code)
        lines = self._log(name).strip().splitlines()
        self.observe(label, [operator.code, lines[-1].split(":")[0] if lines else ""])

    def observe(self, label: str, value: Any) -> None:
        """Record a value that the scenario itself has found: a response, a rejection, a number."""
        self._observations.append([label, value])

    def record_gaps(self, fn: str, count: int) -> None:
        """Record the seconds between the first calls of a handler."""
        times = [call["at"] for call in self.traces(fn)][: count + 1]
        self._gaps[fn] = [round(after - before, 2) for before, after in itertools.pairwise(times)]

    def http_get(self, url: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def _log_file(self, name: str) -> pathlib.Path:
        return self.workdir / f"{name}.log"

    def _log(self, name: str) -> str:
        return self._log_file(name).read_text(errors="replace")
