"""Control plane on the loopback interface, from the binaries in `KUBEBUILDER_ASSETS`.

It consists of etcd, kube-apiserver, and kube-controller-manager (garbage collection, namespaces) if that is
there.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pathlib
import secrets
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from types import MappingProxyType

from kopf._runtime import bridge

ASSETS = "KUBEBUILDER_ASSETS"
READY_TIMEOUT = 90.0
ATTEMPTS = 5  # another process can take a free port before ours does


class ClusterUnavailableError(Exception):
    """There is no such cluster here; the message names what is missing."""

    __module__ = "kopf.testing"


class _PortTakenError(ClusterUnavailableError):
    """Another process has taken a port meanwhile."""


class ControlPlane:
    """One control plane in one folder.

    `guests` are users besides the administrator, with their groups; `tokens` are those of all users. The
    certificate at `authority` exists once the control plane is started.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        assets: pathlib.Path | None = None,
        guests: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.authority = folder / "pki" / "server.crt"
        self.tokens = {user: secrets.token_urlsafe(16) for user in ("admin", *guests)}
        self._groups = {"admin": "system:masters", **guests}
        self._assets = assets
        self._port = _free_port()
        self._processes: list[tuple[str, subprocess.Popen[bytes]]] = []

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start everything, and wait until requests are served."""
        assets = self._assets or find_assets()
        self._write_secrets()
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._start_store_and_server(assets)
                break
            except _PortTakenError:
                self.stop()
                if attempt == ATTEMPTS:
                    raise
                self._port = _free_port()
        self._write_kubeconfig()
        if (assets / "kube-controller-manager").exists():
            self._spawn(
                assets / "kube-controller-manager",
                f"--kubeconfig={self.kubeconfig}",
                "--leader-elect=false",
                "--secure-port=0",
                "--use-service-account-credentials=false",
                "--controllers=namespace-controller,garbage-collector-controller",
            )

    def _write_secrets(self) -> None:
        pki = self.folder / "pki"
        pki.mkdir(parents=True)
        certificate, key = bridge.build_certificate(["127.0.0.1", "localhost"])
        self.authority.write_bytes(certificate)
        (pki / "server.key").write_bytes(key)
        lines = [f'{token},{user},{user},"{self._groups[user]}"\n' for user, token in self.tokens.items()]
        (pki / "tokens.csv").write_text("".join(lines))

    def _start_store_and_server(self, assets: pathlib.Path) -> None:
        pki = self.folder / "pki"
        store = f"http://127.0.0.1:{_free_port()}"
        self._spawn(
            assets / "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            "--log-level=error",
            "--unsafe-no-fsync",
            f"--listen-client-urls={store}",
            f"--advertise-client-urls={store}",
            f"--listen-peer-urls=http://127.0.0.1:{_free_port()}",
        )
        self._spawn(
            assets / "kube-apiserver",
            f"--etcd-servers={store}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--tls-cert-file={self.authority}",
            f"--tls-private-key-file={pki / 'server.key'}",
            f"--token-auth-file={pki / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            # Any key pair does: these tokens are only for this control plane.
            f"--service-account-key-file={self.authority}",
            f"--service-account-signing-key-file={pki / 'server.key'}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--disable-admission-plugins=ServiceAccount",
        )
        self._wait_until_ready()

    def stop(self) -> None:
        """Stop everything; etcd last, as the API server does not end without it."""
        for _, process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def _spawn(self, binary: pathlib.Path, *args: str) -> None:
        with (self.folder / f"{binary.name}.log").open("wb") as log:
            process = subprocess.Popen(
                [binary, *args],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl+C is for us: it must not take etcd away before the API server.
                start_new_session=True,
            )
        self._processes.append((binary.name, process))

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT
        while not self._is_ready():
            for name, process in self._processes:
                if process.poll() is not None:
                    log = (self.folder / f"{name}.log").read_text(errors="replace")
                    error = _PortTakenError if "address already in use" in log else ClusterUnavailableError
                    raise error("\n".join([f"{name} has exited at once:", *log.splitlines()[-5:]]))
            if time.monotonic() > deadline:
                raise ClusterUnavailableError(f"The API server is not ready after {READY_TIMEOUT} seconds.")
            time.sleep(0.1)  # it does not report that it listens

    def _is_ready(self) -> bool:
        headers = {"Authorization": f"Bearer {self.tokens['admin']}"}
        request = urllib.request.Request(f"{self.url}/readyz", headers=headers)
        try:
            context = ssl.create_default_context(cafile=str(self.authority))
            with urllib.request.urlopen(request, context=context, timeout=5):
                return True
        except (OSError, ssl.SSLError, urllib.error.URLError):
            return False

    def _write_kubeconfig(self) -> None:
        authority = base64.b64encode(self.authority.read_bytes()).decode()
        cluster = {"server": self.url, "certificate-authority-data": authority}
        context = {"cluster": "kopf", "user": "admin", "namespace": "default"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "kopf",
            "clusters": [{"name": "kopf", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": self.tokens["admin"]}}],
            "contexts": [{"name": "kopf", "context": context}],
        }
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(json.dumps(config, indent=2))


def find_assets() -> pathlib.Path:
    """The folder with the binaries; `ClusterUnavailableError` if they are not there."""
    named = os.environ.get(ASSETS)
    if not named:
        raise ClusterUnavailableError(
            f"Set {ASSETS} to a folder with etcd and kube-apiserver,"
            " such as `setup-envtest use -p path` prints."
        )
    folder = pathlib.Path(named)
    missing = [name for name in ("etcd", "kube-apiserver") if not (folder / name).exists()]
    if missing:
        raise ClusterUnavailableError(f"{ASSETS}={named} has no {' and no '.join(missing)}.")
    return folder


def _free_port() -> int:
    """A free port below the range of outgoing connections, so that none of them takes it meanwhile."""
    while True:
        port = secrets.randbelow(10_000) + 20_000
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
