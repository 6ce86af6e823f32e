"""A real Kubernetes control plane on loopback: etcd, kube-apiserver and kube-controller-manager, without
nodes.

`kopf.testing` starts it from ``KUBEBUILDER_ASSETS``. The tests also have a user without permissions. It is
apart from the fixtures because ``make demo`` and the differential suite start one too.
"""

import contextlib
import json
import pathlib
import secrets
import tempfile
from collections.abc import Iterator

from kopf._testing import control_plane
from kopf._testing.control_plane import ClusterUnavailableError, find_assets

__all__ = ["ClusterUnavailableError", "ControlPlane", "find_assets", "running"]


class ControlPlane(control_plane.ControlPlane):
    """A control plane with kubeconfigs of several users: ``admin`` may all, ``guest`` may nothing."""

    def __init__(self, folder: pathlib.Path, assets: pathlib.Path) -> None:
        super().__init__(folder, assets=assets, guests={"guest": "guests"})

    def write_kubeconfig(
        self, user: str = "admin", *, token: str | None = None, server: str | None = None
    ) -> pathlib.Path:
        """Write a kubeconfig for that user; a wrong token or server makes a wrong one on purpose."""
        config = json.loads(self.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token or self.tokens[user]}
        config["clusters"][0]["cluster"]["server"] = server or self.url
        path = self.folder / f"{user}-{secrets.token_hex(4)}.kubeconfig"
        path.write_text(json.dumps(config, indent=2))
        return path


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
