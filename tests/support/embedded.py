"""The embedded API server in place of a control plane: the same tests, with no binaries.

Roles are obeyed; there are no other users than the administrator and the accounts of services.
"""

import contextlib
import json
import pathlib
import secrets
import tempfile
from collections.abc import Iterator

import yaml
from kopf.testing import Cluster


class EmbeddedPlane:
    """What tests need of a control plane."""

    def __init__(self, cluster: Cluster, folder: pathlib.Path) -> None:
        self.cluster, self.folder = cluster, folder

    def write_kubeconfig(
        self, user: str = "admin", *, token: str | None = None, server: str | None = None
    ) -> pathlib.Path:
        """Write a kubeconfig; a wrong token or server makes a wrong one on purpose."""
        config = yaml.safe_load(pathlib.Path(self.cluster.kubeconfig).read_text())
        if token is not None or user != "admin":
            config["users"][0]["user"] = {"token": token or f"{user}-token"}
        if server is not None:
            config["clusters"][0]["cluster"]["server"] = server
        path = self.folder / f"{user}-{secrets.token_hex(4)}.kubeconfig"
        path.write_text(json.dumps(config))
        return path


@contextlib.contextmanager
def running() -> Iterator[EmbeddedPlane]:
    """One server for all tests."""
    with tempfile.TemporaryDirectory() as folder, Cluster(controllers=True, access=True) as cluster:
        yield EmbeddedPlane(cluster, pathlib.Path(folder))
