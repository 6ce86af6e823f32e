"""Clusters for tests and development: embedded, from the binaries of a control plane, or by a kubeconfig."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import os
import pathlib
import secrets
import tempfile
from collections.abc import Collection, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kopf._objects.credentials import ConnectionInfo
from kopf._testing.api import ClusterApi, has_no_finalizers
from kopf._testing.async_twins import AsyncCluster
from kopf._testing.bindings import ApiServer
from kopf._testing.client import ApiError, Client, read_kubeconfig
from kopf._testing.control_plane import ClusterUnavailableError, ControlPlane, find_assets
from kopf._testing.discovery import CRDS, NAMESPACES, ResourceMapping, mappings_of
from kopf._testing.embedded import Kind
from kopf._testing.user_client import UserClient

if TYPE_CHECKING:
    from kopf._runtime.client.api import Api
    from kopf._runtime.client.sync_api import SyncApi

ResourceMappings = list[ResourceMapping]
Names = list[str]


IN_CLUSTER = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
"""The variables by which client libraries know that they run in a pod."""


def kubeconfig_environment(cluster: Cluster) -> dict[str, str | None]:
    """The variables by which client libraries find the cluster, even in a pod of another one.

    None is for variables to be removed.
    """
    return {"KUBECONFIG": str(cluster.kubeconfig)} | dict.fromkeys(IN_CLUSTER)


class Cluster(ClusterApi):
    """A cluster for the duration of the `with` block.

    Objects and CRDs that were created here are deleted from clusters that continue to run.

    Args:
        kind: `embedded`: in the memory of this process. `assets`: etcd and kube-apiserver from
            `KUBEBUILDER_ASSETS`. `kubeconfig`: a cluster that runs already.
        kubeconfig: The path of the kubeconfig; by default, that of the environment.
        namespace: The default namespace of the methods.
        port: The port of the embedded server; 0: a random one.
        tls: Whether the embedded server uses TLS.
        token: The token that the embedded server requires; None: a generated one.
        controllers: Whether the embedded server simulates the built-in controllers of Kubernetes.
        access: Whether the embedded server checks permissions, by RBAC.
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
        self._path: pathlib.Path | None = None
        self._user_client: UserClient | None = None
        self._deleted_namespaces: list[str] = []  # they may still exist
        self._successor: Cluster | None = None

    def __repr__(self) -> str:
        address = self._client.info.server if self._client is not None else "not running"
        return f"<{type(self).__name__}: {self.kind}, {address}, namespace={self.namespace!r}>"

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

    @property
    def aio(self) -> AsyncCluster:
        """The same methods for asynchronous tests: `await cluster.aio.wait_for(...)`."""
        return AsyncCluster(self)

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
                    info = ConnectionInfo(
                        server=server.url, ca_data=server.ca, token=server.token, default_namespace="default"
                    )
                case "assets":
                    plane = ControlPlane(_folder(stack))
                    stack.callback(plane.stop)
                    plane.start()
                    self._path = plane.kubeconfig
                    info = read_kubeconfig(self._path)
                case "kubeconfig":
                    self._path = _existing_kubeconfig(self._kubeconfig_option)
                    info = read_kubeconfig(self._path)
            self._client = Client(info)
            stack.callback(self._client.close)
            self._user_client = UserClient(self._client.info)
            stack.callback(self._user_client.close)
            if self.kind == "kubeconfig":
                stack.callback(self._remove_created)
            self._cleanup = stack.pop_all()

    def stop(self) -> None:
        """Stop the cluster; or delete the created objects, if it continues to run."""
        self._cleanup.close()
        self._server = self._client = self._user_client = None
        # The next server has other kinds and objects.
        self._discovery.invalidate()
        self._created.clear()

    @property
    def api(self) -> SyncApi:
        """The API client for threads, as handlers get it, in the namespace of the cluster.

        Its requests are in the request log, with the agent `kopf-test-client`.
        """
        return self._user.blocking(self.namespace)

    @property
    def async_api(self) -> Api:
        """The API client for coroutines, as handlers get it; like `api` otherwise."""
        return self._user.asynchronous(self.namespace)

    @property
    def _user(self) -> UserClient:
        if self._user_client is None:
            raise RuntimeError("The cluster is not running.")
        return self._user_client

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

    def resource_types(self) -> ResourceMappings:
        """All resources that the cluster serves; the preferred versions come first."""
        self._discovery.invalidate()
        return self._discovery.all()

    @property
    def crds(self) -> Names:
        """The names of the CRDs that were created here, and are not removed yet."""
        return [name for mapping, _, name in self._created if mapping == CRDS]

    def remove_crds(self, names: Iterable[str]) -> None:
        """Remove CRDs that were created elsewhere, maybe by several processes.

        Args:
            names: The names of the CRDs.
        """
        self._created += [(CRDS, None, name) for name in set(names)]
        self._remove_created()

    def disown_crds(self) -> None:
        """Do not remove the CRDs that were created here."""
        self._created = [item for item in self._created if item[0] != CRDS]

    def hand_over(self, other: Cluster) -> None:
        """Let the other instance for the same cluster remove what this one does not remove at its end: the
        CRDs that were created here, and the finalizers that keep its namespaces.

        Args:
            other: The other instance.
        """
        other._created += [item for item in self._created if item[0] == CRDS]
        self.disown_crds()
        self._successor = other

    def _remove_created(self) -> None:
        try:
            while self._created:
                mapping, target_namespace, name = self._created[-1]
                with contextlib.suppress(ApiError):
                    self._remove(mapping, target_namespace, name)
                self._created.pop()
            if self._successor is not None:
                self._successor._deleted_namespaces += self._deleted_namespaces
            else:
                self._release_namespaces(self._deleted_namespaces)
        except (OSError, http.client.HTTPException) as e:
            # Not raised: it would hide the error of the test.
            remaining = [f"{mapping.plural}/{name}" for mapping, _, name in self._created]
            remaining += [f"namespaces/{name}" for name in self._deleted_namespaces]
            names = ", ".join(remaining)
            text = f"The cluster cannot be reached: {e}. These objects of the tests stay there: {names}."
            logging.getLogger("kopf.testing").warning(text)
        self._created, self._deleted_namespaces, self._successor = [], [], None

    def _remove(self, mapping: ResourceMapping, namespace: str | None, name: str) -> None:
        """Remove the object with its contents, even if they have finalizers: no operator is running that
        would remove them.
        """
        path = mapping.path(namespace, name)
        if mapping == CRDS:
            crd = self.get(CRDS, name)
            self.call("DELETE", path)
            self._release_all(mappings_of(crd)[:1], None)
        elif mapping == NAMESPACES:
            self.call("DELETE", path)
            self._deleted_namespaces.append(name)
        else:
            self.call("PATCH", path, {"metadata": {"finalizers": None}})
            self.call("DELETE", path)

    def _release_namespaces(self, names: Collection[str]) -> None:
        """Remove the finalizers of what handlers and clients have created in the deleted namespaces.

        That needs a list of each kind: only for namespaces that still exist, and may have such objects.
        """
        if not names:
            return
        with contextlib.suppress(ApiError):
            existing = {it["metadata"]["name"] for it in self.list(NAMESPACES) if not has_no_finalizers(it)}
            if remaining := existing.intersection(names):
                # The preferred versions come first.
                kinds = {(it.group, it.plural): it for it in reversed(self.resource_types())}
                mappings = [it for it in kinds.values() if it.namespaced and "list" in it.verbs]
                for name in remaining:
                    self._release_all(mappings, name)

    def _release_all(self, mappings: Iterable[ResourceMapping], namespace: str | None) -> None:
        """Remove the finalizers of all objects of these kinds, in the namespace, or everywhere (None)."""
        for mapping in mappings:
            with contextlib.suppress(ApiError):  # it cannot be listed, or is not served any more
                for body in self.list(mapping, namespace or "*"):
                    metadata = body["metadata"]
                    if metadata.get("finalizers"):
                        path = mapping.path(metadata.get("namespace"), metadata["name"])
                        with contextlib.suppress(ApiError):  # the object is gone meanwhile
                            self.call("PATCH", path, {"metadata": {"finalizers": None}})


def require_kind(kind: Kind) -> None:
    """Raise `ClusterUnavailableError` if there can be no cluster of this kind here."""
    if kind == "assets":
        find_assets()
    elif kind == "kubeconfig":
        read_kubeconfig(_existing_kubeconfig(None))


def create_unique_namespace(cluster: Cluster) -> str:
    """Create a namespace with a new name in the cluster, and make it the default one."""
    name = f"kopf-{secrets.token_hex(4)}"
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    cluster.namespace = name
    return name


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
