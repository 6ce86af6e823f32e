"""The kubeconfig of the server of `kopf dev` and `kopf cluster`, for other processes."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator

import click

from kopf._testing.cluster import Cluster
from kopf._testing.private_files import write_private

KUBECONFIG = ".kopf/kubeconfig"  # in the current folder
# The beginning of the kubeconfigs of embedded servers.
_HEAD = """apiVersion: v1
kind: Config
current-context: kopf
clusters:
- name: kopf
  cluster:
    server: https://127.0.0.1:"""


@contextlib.contextmanager
def published_kubeconfig(cluster: Cluster, kubeconfig: pathlib.Path | None) -> Iterator[pathlib.Path]:
    """Write the kubeconfig, in whole or not at all, as other processes may wait for it; and remove it.

    Without a given path, it is the same one for each run in the current folder.
    """
    path = kubeconfig if kubeconfig is not None else pathlib.Path(KUBECONFIG)
    if kubeconfig is not None:
        _check_is_replaceable(kubeconfig)
    text = cluster.kubeconfig.read_text(encoding="utf-8")
    try:
        if kubeconfig is None:
            path.parent.mkdir(exist_ok=True)
            (path.parent / ".gitignore").write_text("*\n", encoding="utf-8")
        write_private(path, text)
    except OSError:
        if kubeconfig is not None:
            raise
        yield cluster.kubeconfig  # the folder is read-only
        return
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):
            # Another run in the same folder may have replaced it.
            if path.read_text(encoding="utf-8") == text:
                path.unlink()
            if kubeconfig is None and [item.name for item in path.parent.iterdir()] == [".gitignore"]:
                (path.parent / ".gitignore").unlink()
                path.parent.rmdir()


def _check_is_replaceable(path: pathlib.Path) -> None:
    """Raise a usage error if there is a file that is not the kubeconfig of an embedded server."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError):
        text = "unreadable"
    if text.strip() and not text.startswith(_HEAD):
        raise click.UsageError(
            f"{path} is not a kubeconfig that this command has written, and would be replaced and removed:"
            " name another file."
        )
