"""Options `--kubeconfig` and `--context`: the cluster of a command.

They are passed on in the environment variable `KUBECONFIG`, so that login handlers, client libraries and
plugins use the same cluster.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Iterator

import click

from kopf._objects.suggestions import did_you_mean

VARIABLE = "KUBECONFIG"
DEFAULT = "~/.kube/config"


@contextlib.contextmanager
def selected_cluster(kubeconfig: pathlib.Path | None, context: str | None) -> Iterator[None]:
    """Let the process use this kubeconfig and this context of it, during the `with` block.

    A context that is not in the kubeconfigs is a usage error.
    """
    if kubeconfig is None and context is None:
        yield
        return
    previous = os.environ.get(VARIABLE)
    paths = str(kubeconfig) if kubeconfig is not None else previous or os.path.expanduser(DEFAULT)
    with contextlib.ExitStack() as stack:
        if context is not None:
            _check_context(context, paths)
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="kopf.", ignore_cleanup_errors=True)
            )
            paths = f"{_write_overlay(pathlib.Path(folder), context)}{os.pathsep}{paths}"
        os.environ[VARIABLE] = paths
        try:
            yield
        finally:
            if previous is None:
                os.environ.pop(VARIABLE, None)
            else:
                os.environ[VARIABLE] = previous


# If there are several kubeconfigs, the current context of the first one is used.
def _write_overlay(folder: pathlib.Path, context: str) -> pathlib.Path:
    import json

    path = folder / "context"
    content = {"apiVersion": "v1", "kind": "Config", "current-context": context}
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def _check_context(context: str, paths: str) -> None:
    import yaml

    known: list[str] = []
    for path in filter(None, paths.split(os.pathsep)):
        try:
            config = yaml.safe_load(pathlib.Path(path).expanduser().read_text(encoding="utf-8"))
            known += [str(item["name"]) for item in config.get("contexts") or ()]
        except (OSError, UnicodeDecodeError, yaml.YAMLError, AttributeError, TypeError, KeyError):
            continue  # the login reports what is wrong with the file
    if context not in known:
        what = f"There is no context {context!r} in the kubeconfig {paths}"
        hint = did_you_mean(context, known)
        names = f" It has {', '.join(sorted(known))}." if known and hint == "." else ""
        raise click.UsageError(f"{what}{hint}{names}")


def default_namespace() -> str | None:
    """The namespace of the current context, or of the service account in a pod; None if there is none."""
    from kopf._runtime import bridge

    if bridge.has_named_kubeconfig() or (bridge.has_kubeconfig() and not bridge.has_service_account()):
        fields = bridge.read_kubeconfig()
        return fields.get("default_namespace") if isinstance(fields, dict) else None
    account = bridge.read_service_account()
    return account.get("default_namespace") if account is not None else None
