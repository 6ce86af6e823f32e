"""A real Kubernetes control plane on loopback: etcd, kube-apiserver and kube-controller-manager, without
nodes.

It is apart from the fixtures because ``make demo`` starts one too. It uses the standard library only, so
that it works with any interpreter and on a machine with nothing else installed: no openssl, no kubectl,
no Kubernetes client.

The binaries come from the folder that ``KUBEBUILDER_ASSETS`` names, or from a launcher next to the
checkout.
"""

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
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAUNCHER = ROOT.parent / "shared" / "controlplane" / "assets"
NEEDED = ("etcd", "kube-apiserver", "kube-controller-manager")
HINT = (
    "set KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver and kube-controller-manager "
    "(for example, the one that `setup-envtest use -p path` prints)"
)


class ClusterUnavailableError(Exception):
    """There are no binaries of a control plane; the message names the variable to set."""


def find_assets() -> pathlib.Path:
    """The folder with the binaries. Raises an error that names the variable to set."""
    given = os.environ.get("KUBEBUILDER_ASSETS")
    if given:
        folder = pathlib.Path(given)
        missing = [name for name in NEEDED[:2] if not (folder / name).exists()]
        if missing:
            raise ClusterUnavailableError(
                f"KUBEBUILDER_ASSETS={given} has no {' and no '.join(missing)}: {HINT}"
            )
        return folder
    if os.access(LAUNCHER, os.X_OK):
        done = subprocess.run([LAUNCHER], capture_output=True, text=True, timeout=60)
        if done.returncode == 0:
            return pathlib.Path(done.stdout.strip())
        raise ClusterUnavailableError(f"{LAUNCHER} failed: {done.stderr.strip()}")
    raise ClusterUnavailableError(f"no control plane: {HINT}")


class ControlPlane:
    """A running control plane, its address and its kubeconfigs (``admin`` may all, ``guest`` may nothing)."""

    def __init__(self, folder: pathlib.Path, assets: pathlib.Path) -> None:
        self.folder = folder
        self.assets = assets
        self.port = _free_port()
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def authority(self) -> pathlib.Path:
        return self.folder / "pki" / "apiserver.crt"

    def kubeconfig(
        self, user: str = "admin", *, token: str | None = None, server: str | None = None
    ) -> pathlib.Path:
        """Write a kubeconfig for that user; a wrong token or server makes a wrong one on purpose."""
        path = self.folder / f"{user}-{secrets.token_hex(4)}.kubeconfig"
        cluster = {"server": server or self.url, "certificate-authority": str(self.authority)}
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "main",
                    "clusters": [{"name": "main", "cluster": cluster}],
                    "users": [{"name": "main", "user": {"token": token or f"{user}-token"}}],
                    "contexts": [
                        {
                            "name": "main",
                            "context": {"cluster": "main", "user": "main", "namespace": "default"},
                        }
                    ],
                },
                indent=2,
            )
        )
        return path

    def start(self, *, deadline: float = 90) -> None:
        pki = self.folder / "pki"
        pki.mkdir(parents=True)
        (pki / "sa.key").write_text(_signing_key())
        (pki / "tokens.csv").write_text(
            'admin-token,admin,admin,"system:masters"\nguest-token,guest,guest,"guests"\n'
        )
        etcd = f"http://127.0.0.1:{_free_port()}"
        peers = f"http://127.0.0.1:{_free_port()}"
        self._spawn(
            "etcd",
            "--data-dir",
            self.folder / "etcd",
            "--log-level",
            "error",
            "--unsafe-no-fsync",
            "--listen-client-urls",
            etcd,
            "--advertise-client-urls",
            etcd,
            "--listen-peer-urls",
            peers,
        )
        self._spawn(
            "kube-apiserver",
            "--etcd-servers",
            etcd,
            "--bind-address",
            "127.0.0.1",
            "--secure-port",
            self.port,
            "--cert-dir",
            pki,
            "--token-auth-file",
            pki / "tokens.csv",
            "--authorization-mode",
            "RBAC",
            "--service-account-issuer",
            "https://kubernetes.default.svc",
            "--service-account-key-file",
            pki / "sa.key",
            "--service-account-signing-key-file",
            pki / "sa.key",
            "--service-cluster-ip-range",
            "10.0.0.0/24",
            "--disable-admission-plugins",
            "ServiceAccount",
        )
        self._await_readiness(deadline)
        if (self.assets / "kube-controller-manager").exists():
            self._spawn(
                "kube-controller-manager",
                "--kubeconfig",
                self.kubeconfig(),
                "--leader-elect=false",
                "--secure-port",
                0,
                "--use-service-account-credentials=false",
                "--controllers",
                "namespace-controller,garbage-collector-controller",
            )

    def stop(self) -> None:
        # First those that need etcd, then etcd itself: the API server hangs on SIGTERM once its etcd is gone.
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()

    def _spawn(self, name: str, *args: object) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes.append(
                subprocess.Popen(
                    [self.assets / name, *map(str, args)],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    # Not in our process group: Ctrl+C must not take etcd away before the API server.
                    start_new_session=True,
                )
            )

    def _await_readiness(self, deadline: float) -> None:
        until = time.monotonic() + deadline
        while not self._is_ready():
            for process in self.processes:
                if process.poll() is not None:
                    raise ClusterUnavailableError(f"{process.args[0]} exited at once:\n{self._tail(process)}")  # type: ignore[index]
            if time.monotonic() > until:
                raise ClusterUnavailableError(
                    f"the API server is not ready after {deadline} s; its logs are in {self.folder}"
                )
            time.sleep(0.1)  # The API server does not report when it begins to listen.

    def _is_ready(self) -> bool:
        if not self.authority.exists() or not self.authority.stat().st_size:
            return False
        request = urllib.request.Request(
            f"{self.url}/readyz", headers={"Authorization": "Bearer admin-token"}
        )
        try:
            context = ssl.create_default_context(cafile=str(self.authority))
            with urllib.request.urlopen(request, context=context, timeout=5):
                return True
        except (OSError, ssl.SSLError, urllib.error.URLError):
            return False

    def _tail(self, process: subprocess.Popen[bytes]) -> str:
        name = pathlib.Path(process.args[0]).name  # type: ignore[index]
        return "\n".join((self.folder / f"{name}.log").read_text(errors="replace").splitlines()[-5:])


@contextlib.contextmanager
def running(assets: pathlib.Path | None = None) -> Iterator[ControlPlane]:
    """Start a control plane in a temporary folder, and leave nothing behind."""
    with tempfile.TemporaryDirectory(prefix="controlplane.", ignore_cleanup_errors=True) as folder:
        plane = ControlPlane(pathlib.Path(folder), assets or find_assets())
        try:
            plane.start()
            yield plane
        finally:
            plane.stop()


def _free_port() -> int:
    """An unused port below the range of ports of outgoing connections."""
    while True:
        port = secrets.randbelow(10_000) + 20_000
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port


def _signing_key() -> str:
    """A new P-256 key for service accounts' tokens, in PEM: SEC 1, with no public half: readers derive it."""
    scalar = b"\0" + secrets.token_bytes(31)  # below the curve's order in any case
    der = bytes.fromhex("30310201010420") + scalar + bytes.fromhex("a00a06082a8648ce3d030107")
    return f"-----BEGIN EC PRIVATE KEY-----\n{base64.b64encode(der).decode()}\n-----END EC PRIVATE KEY-----\n"
