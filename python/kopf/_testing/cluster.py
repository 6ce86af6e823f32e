"""`kopf.testing.Cluster`: a cluster as a test or a person with no cluster sees it. It owns the verbs, the
waiting, and what is left behind; it must not know what an operator is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import secrets
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any

import yaml

from kopf._objects.credentials import ConnectionInfo
from kopf._runtime.bridge import ApiServer
from kopf._runtime.context import handler_var
from kopf._testing.client import JSON, MERGE, ApiError, Client
from kopf._testing.conditions import Condition, as_function
from kopf._testing.control_plane import ClusterUnavailableError, ControlPlane, find_assets
from kopf._testing.discovery import CRDS, NAMESPACES, Discovery, Object, ResourceMapping
from kopf._testing.embedded import EmbeddedFeatures, Kind
from kopf._testing.manifests import Source, apply_order, read

Objects = list[Object]
ResourceMappings = list[ResourceMapping]
Names = list[str]

SERVED_TIMEOUT = 60.0
WRITE_METHODS = ("POST", "PUT", "PATCH")
FIELD_MANAGER = "python-handler"
"""The manager of what handlers write."""

IN_CLUSTER = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
"""The variables by which client libraries know that they run in a pod."""


def kubeconfig_environment(cluster: Cluster) -> dict[str, str | None]:
    """The variables by which client libraries find the cluster, even in a pod of another one.

    None is for variables to be removed.
    """
    return {"KUBECONFIG": str(cluster.kubeconfig)} | dict.fromkeys(IN_CLUSTER)


class Cluster(EmbeddedFeatures):
    """A cluster for the duration of the `with` block.

    `kind` is `embedded` (in the memory of this process, started in milliseconds), `assets` (etcd & kube-
    apiserver from `KUBEBUILDER_ASSETS`), or `kubeconfig` (one that is there already: `kubeconfig=`, or the
    environment's). Objects and definitions that were created here are deleted from clusters that go on
    without us.
    """

    def __init__(
        self,
        kind: Kind = "embedded",
        *,
        kubeconfig: str | os.PathLike[str] | None = None,
        namespace: str = "default",
        port: int = 0,
        tls: bool = True,
        token: str | None = None,
        controllers: bool = False,
        access: bool = False,
    ) -> None:
        super().__init__()
        if kind not in ("embedded", "assets", "kubeconfig"):
            raise ValueError(f"There is no kind of clusters {kind!r}.")
        self.kind: Kind = kind
        self.namespace = namespace
        self._kubeconfig_option = kubeconfig
        self._options: dict[str, Any] = {
            "port": port,
            "tls": tls,
            "token": token,
            "controllers": controllers,
            "access": access,
        }
        self._cleanup = contextlib.ExitStack()
        self._client: Client | None = None
        self._path: pathlib.Path | None = None
        self._discovery = Discovery(lambda method, path: self.call(method, path))
        self._created: list[tuple[ResourceMapping, str | None, str]] = []

    def __repr__(self) -> str:
        target_namespace = self._client.info.server if self._client is not None else "not running"
        return f"<{type(self).__name__}: {self.kind}, {target_namespace}, namespace={self.namespace!r}>"

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Cluster:
        if self.kind == "embedded":
            self._start(await ApiServer.launch(**self._options))
        else:
            await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.stop)

    def start(self) -> None:
        """Start it, or connect to it."""
        self._start(ApiServer(**self._options) if self.kind == "embedded" else None)

    def _start(self, server: ApiServer | None) -> None:
        with contextlib.ExitStack() as stack:
            match self.kind:
                case "embedded":
                    assert server is not None
                    self._server = server
                    stack.callback(self._server.shutdown)
                    stack.callback(self._clock_control.reset)
                    self._path = _folder(stack) / "kubeconfig"
                    _write_kubeconfig(self._path, self._server.kubeconfig)
                case "assets":
                    plane = ControlPlane(_folder(stack))
                    stack.callback(plane.stop)
                    plane.start()
                    self._path = plane.kubeconfig
                case "kubeconfig":
                    self._path = _existing_kubeconfig(self._kubeconfig_option)
            self._client = Client(self._path)
            stack.callback(self._client.close)
            if self.kind == "kubeconfig":
                stack.callback(self._remove_created)
            self._cleanup = stack.pop_all()

    def stop(self) -> None:
        """Stop it; or remove what was created in it, if it goes on without us."""
        self._cleanup.close()
        self._server = self._client = None

    # --- How to reach it.

    @property
    def kubeconfig(self) -> pathlib.Path:
        """The file by which others connect to it."""
        if self._path is None:
            raise RuntimeError("The cluster is not started yet.")
        return self._path

    @property
    def connection(self) -> ConnectionInfo:
        """The same as a login handler returns."""
        return self._http.info

    @property
    def url(self) -> str:
        """The address of the API server."""
        return self._http.info.server

    @property
    def _http(self) -> Client:
        if self._client is None:
            raise RuntimeError("The cluster is not running.")
        return self._client

    # --- The verbs.

    def call(self, method: str, path: str, body: Any = None, content: str | None = None) -> Any:
        """Any request; the decoded answer. Those to the embedded server go around the journal and the
        faults.
        """
        default = MERGE if method == "PATCH" else JSON
        if method in WRITE_METHODS and handler_var.get(None) is not None:
            # Operators tell the changes of their handlers from those of others by the managers of fields.
            path += ("&" if "?" in path else "?") + f"fieldManager={FIELD_MANAGER}"
        if self._server is None or (content or default) != default:
            return self._http.call(method, path, body, content or default)
        code, answer = self._server.call(method, path, body)
        if code >= 300:
            raise ApiError(code, answer["reason"], answer["message"])
        return answer

    def create(self, source: Source, *, namespace: str | None = None) -> Object:
        """Create an object; its name must be free."""
        [body] = read(source)
        return self._create(body, namespace)

    def apply(self, source: Source, *, namespace: str | None = None) -> Objects:
        """Create objects, or merge them into those that exist: YAML, files, folders, dicts.

        Definitions (CRDs) are served when this returns.
        """
        bodies = sorted(read(source), key=apply_order)
        applied = []
        for body in bodies:
            mapping = self._discovery.find(body)
            target_namespace = self._namespace_of(mapping, body, namespace)
            if self.find(mapping, body["metadata"]["name"], target_namespace) is None:
                try:
                    applied.append(self._create(body, namespace))
                    continue
                except ApiError as error:
                    if error.code != 409:  # somebody else was faster
                        raise
            path = mapping.path(target_namespace, body["metadata"]["name"])
            applied.append(self.call("PATCH", path, body))
            self._wait_until_served(mapping, body)
        return applied

    def get(
        self, kind: str | Mapping[str, Any] | ResourceMapping, name: str, namespace: str | None = None
    ) -> Object:
        """The object; `ApiError` with the code 404 if there is none."""
        mapping = self._mapping(kind)
        return dict(self.call("GET", mapping.path(namespace or self.namespace, name)))

    def find(
        self, kind: str | Mapping[str, Any] | ResourceMapping, name: str, namespace: str | None = None
    ) -> Object | None:
        """The object, or None."""
        try:
            return self.get(kind, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    def list(
        self,
        kind: str | Mapping[str, Any] | ResourceMapping,
        namespace: str | None = None,
        *,
        labels: str = "",
    ) -> Objects:
        """The objects of the namespace; `*` for all namespaces."""
        mapping = self._mapping(kind)
        target_namespace = None if namespace == "*" else namespace or self.namespace
        query = f"?labelSelector={urllib.parse.quote(labels)}" if labels else ""
        found = self.call("GET", mapping.path(target_namespace) + query)
        type_meta = {"apiVersion": mapping.api_version, "kind": mapping.kind}
        return [{**type_meta, **item} for item in found["items"]]

    def patch(
        self,
        kind: str | Mapping[str, Any] | ResourceMapping,
        name: str,
        patch: Mapping[str, Any],
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> Object:
        """Merge into the object; None removes."""
        mapping = self._mapping(kind)
        return dict(self.call("PATCH", mapping.path(namespace or self.namespace, name, subresource), patch))

    def delete(
        self, kind: str | Mapping[str, Any] | ResourceMapping, name: str, namespace: str | None = None
    ) -> None:
        """Ask for the deletion; finalizers may hold it."""
        self.call("DELETE", self._mapping(kind).path(namespace or self.namespace, name))

    def events(self, about: str | None = None, namespace: str | None = None) -> Objects:
        """The Kubernetes events, maybe only those about the objects of that name; the oldest first."""
        found = self.list("v1/events", namespace)
        found = [it for it in found if about is None or it["involvedObject"].get("name") == about]
        return sorted(found, key=lambda it: int(it["metadata"]["resourceVersion"]))

    # --- Waiting.

    def wait_for(
        self,
        kind: str | Mapping[str, Any] | ResourceMapping,
        name: str,
        condition: Condition | None = None,
        namespace: str | None = None,
        *,
        timeout: float = 10,
    ) -> Object:
        """Follow the object until the condition holds, and return it.

        The condition is a function of the object (None while there is none), or what the object must
        contain; by default, the object must only exist.
        """
        __tracebackhide__ = True
        predicate = as_function(condition)
        found = self._follow(
            kind, name, lambda it: it is not None and predicate(it), namespace, timeout, condition
        )
        return found if found is not None else {}

    def wait_until_gone(
        self,
        kind: str | Mapping[str, Any] | ResourceMapping,
        name: str,
        namespace: str | None = None,
        *,
        timeout: float = 10,
    ) -> None:
        """Follow the object until it does not exist."""
        __tracebackhide__ = True
        self._follow(kind, name, lambda it: it is None, namespace, timeout)

    def _follow(
        self,
        kind: str | Mapping[str, Any] | ResourceMapping,
        name: str,
        predicate: Callable[[Object | None], Any],
        namespace: str | None,
        timeout: float,
        condition: Condition | None = None,
    ) -> Object | None:
        __tracebackhide__ = True
        mapping = self._mapping(kind)
        deadline = time.monotonic() + timeout
        last: Object | None = None
        for last in self._watch_states(mapping, name, namespace or self.namespace, deadline):
            if predicate(last):
                return last
            self._check()
        expected = ""
        if isinstance(condition, Mapping):
            expected = f"The awaited part:\n{yaml.safe_dump(dict(condition), sort_keys=False)}"
        raise TimeoutError(
            f"{mapping.plural} {name!r}: the awaited state has not come in {timeout} seconds. "
            f"{expected}The last state:\n{_dump(last)}"
        )

    def _watch_states(
        self, mapping: ResourceMapping, name: str, namespace: str, deadline: float
    ) -> Iterator[Object | None]:
        """The states of an object as they come."""
        query = f"?fieldSelector={urllib.parse.quote('metadata.name=' + name)}"
        type_meta = {"apiVersion": mapping.api_version, "kind": mapping.kind}
        while True:
            page = self.call("GET", mapping.path(namespace) + query)
            yield {**type_meta, **page["items"][0]} if page["items"] else None
            version = page["metadata"]["resourceVersion"]
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return
            # A watch can be silent because it is broken: so we look again every second.
            watch = f"{query}&watch=true&resourceVersion={version}&timeoutSeconds={int(remaining) + 1}"
            try:
                for event in self._http.watch(mapping.path(namespace) + watch, min(1.0, remaining)):
                    if event["type"] == "ERROR":
                        break
                    yield None if event["type"] == "DELETED" else event["object"]
                    if time.monotonic() > deadline:
                        return
            except ApiError:
                time.sleep(0.05)  # the server was told to refuse watches

    # --- What is behind.

    def resource_types(self) -> ResourceMappings:
        """Where the objects of all kinds are, in the preferred versions first."""
        self._discovery.invalidate()
        return self._discovery.all()

    @property
    def crds(self) -> Names:
        """The names of the definitions (CRDs) that were created here, and are not removed yet."""
        return [name for mapping, _, name in self._created if mapping == CRDS]

    def remove_crds(self, names: Iterable[str]) -> None:
        """Remove definitions that were created elsewhere, maybe by others at the same time."""
        self._created += [(CRDS, None, name) for name in set(names)]
        self._remove_created()

    def disown_crds(self) -> None:
        """Let somebody else remove the definitions."""
        self._created = [it for it in self._created if it[0] != CRDS]

    def hand_over_crds(self, other: Cluster) -> None:
        """Let the other view of the same cluster remove the definitions that were created here."""
        other._created += [it for it in self._created if it[0] == CRDS]
        self.disown_crds()

    def _mapping(self, kind: str | Mapping[str, Any] | ResourceMapping) -> ResourceMapping:
        return kind if isinstance(kind, ResourceMapping) else self._discovery.find(kind)

    def _namespace_of(
        self, mapping: ResourceMapping, body: Mapping[str, Any], namespace: str | None
    ) -> str | None:
        explicit: str | None = body["metadata"].get("namespace")
        return (namespace or explicit or self.namespace) if mapping.namespaced else None

    def _create(self, body: Mapping[str, Any], namespace: str | None) -> Object:
        mapping = self._discovery.find(body)
        target_namespace = self._namespace_of(mapping, body, namespace)
        created = dict(self.call("POST", mapping.path(target_namespace), body))
        self._created.append((mapping, target_namespace, created["metadata"]["name"]))
        self._wait_until_served(mapping, created)
        return created

    def _wait_until_served(self, mapping: ResourceMapping, body: Mapping[str, Any]) -> None:
        if mapping != CRDS:
            return
        self.wait_for(CRDS, body["metadata"]["name"], _is_established, timeout=SERVED_TIMEOUT)
        deadline = time.monotonic() + SERVED_TIMEOUT
        for served in self._discovery.register(self.get(CRDS, body["metadata"]["name"])):
            while True:
                # An established definition is not served yet: real servers need a moment more.
                try:
                    self.call("GET", served.path(None))
                    break
                except ApiError as error:
                    if error.code not in (404, 429, 503) or time.monotonic() > deadline:
                        raise
                time.sleep(0.05)

    def _remove_created(self) -> None:
        for mapping, target_namespace, name in reversed(self._created):
            with contextlib.suppress(ApiError):
                path = mapping.path(target_namespace, name)
                if mapping not in (CRDS, NAMESPACES):
                    # Nobody is there any more to release them.
                    self.call("PATCH", path, {"metadata": {"finalizers": None}})
                self.call("DELETE", path)
        self._created.clear()


def require_kind(kind: Kind) -> None:
    """Raise `ClusterUnavailableError` if there can be no cluster of this kind here."""
    if kind == "assets":
        find_assets()
    elif kind == "kubeconfig":
        _existing_kubeconfig(None)


def create_unique_namespace(cluster: Cluster) -> str:
    """Create a namespace with a new name in the cluster, and make it the default one."""
    name = f"kopf-{secrets.token_hex(4)}"
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    cluster.namespace = name
    return name


def _dump(body: Object | None) -> str:
    if body is None:
        return "It does not exist."
    meta = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    return yaml.safe_dump({**body, "metadata": meta}, sort_keys=False)


def _is_established(body: Object | None) -> bool:
    conditions = ((body or {}).get("status") or {}).get("conditions") or []
    return any(it["type"] == "Established" and it["status"] == "True" for it in conditions)


def _folder(stack: contextlib.ExitStack) -> pathlib.Path:
    folder = tempfile.TemporaryDirectory(prefix="kopf.", ignore_cleanup_errors=True)
    return pathlib.Path(stack.enter_context(folder))


def _write_kubeconfig(path: pathlib.Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")


def _existing_kubeconfig(option: str | os.PathLike[str] | None) -> pathlib.Path:
    explicit = os.fspath(option) if option else os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    path = pathlib.Path(explicit or "~/.kube/config").expanduser()
    if not path.exists():
        raise ClusterUnavailableError(f"There is no kubeconfig {path}.")
    return path
