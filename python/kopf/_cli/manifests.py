"""Command `kopf manifests`: the permissions and the Deployment of an operator, from its handlers.

The handlers are loaded and not called. The cluster is only read, to resolve the names of resources.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import click
import yaml

from kopf._cli.permissions import (
    WEBHOOK_GROUP,
    WEBHOOKS,
    Permission,
    has_webhooks,
    required_permissions,
    resolve,
)
from kopf._intents.settings import OperatorSettings
from kopf._runtime import bridge, loaders
from kopf._runtime.client.connecting import connect_sync
from kopf._runtime.default_registry import get_default_registry

RBAC = "rbac.authorization.k8s.io"


def generate(
    paths: Collection[str],
    modules: Collection[str],
    namespaces: Collection[str],
    *,
    name: str,
    home: str,
    image: str | None,
) -> str:
    """The manifests as YAML. `home` is the namespace of the operator.

    Without an image, there is no Deployment. Resources that the cluster does not have are a `ClickException`.
    """
    loaders.preload(paths=paths, modules=modules)
    registry = get_default_registry()
    if not (bridge.has_named_kubeconfig() or bridge.has_kubeconfig() or bridge.has_service_account()):
        raise click.ClickException("There is neither a kubeconfig nor a service account of a pod.")
    with connect_sync() as api:
        resolved = resolve(registry, api.resources())
    for kind, selected in resolved.items():
        if kind.selector.is_specific and len(selected) != 1:
            raise click.ClickException(
                f"The resource of {kind.source} is unknown or ambiguous: apply its CRD first."
            )
    permissions = required_permissions(resolved, namespaces, OperatorSettings())
    if has_webhooks(registry):
        permissions += [
            Permission(verb, kind, WEBHOOK_GROUP) for kind in WEBHOOKS for verb in ("create", "patch")
        ]
    documents = [_account(name, home), *_roles(name, home, permissions)]
    if image is not None:
        patterns = [f"--namespace={pattern}" for pattern in namespaces] or ["--all-namespaces"]
        documents.append(_deployment(name, home, image, patterns))
    text: str = yaml.safe_dump_all(documents, sort_keys=False, explicit_start=True)
    return text


def _account(name: str, home: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": home}}


def _roles(name: str, home: str, permissions: Collection[Permission]) -> Iterator[dict[str, Any]]:
    """A ClusterRole for what is cluster-wide, a Role in each namespace for the rest; and their bindings."""
    for namespace in dict.fromkeys(permission.namespace for permission in permissions):
        kind = "Role" if namespace else "ClusterRole"
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        here = [permission for permission in permissions if permission.namespace == namespace]
        api = f"{RBAC}/v1"
        yield {"apiVersion": api, "kind": kind, "metadata": metadata, "rules": _rules(here)}
        yield {
            "apiVersion": api,
            "kind": f"{kind}Binding",
            "metadata": metadata.copy(),
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": home}],
        }


def _rules(permissions: Iterable[Permission]) -> list[dict[str, Any]]:
    """One rule for each resource."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for permission in permissions:
        found = verbs.setdefault((permission.group, permission.resource), [])
        if permission.verb not in found:
            found.append(permission.verb)
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": found}
        for (group, resource), found in verbs.items()
    ]


def _deployment(name: str, home: str, image: str, options: Collection[str]) -> dict[str, Any]:
    container = {
        "name": "operator",
        "image": image,
        "args": [*options, "--liveness=http://0.0.0.0:8080/healthz"],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 30},
    }
    template = {"serviceAccountName": name, "terminationGracePeriodSeconds": 60, "containers": [container]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": home},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": template},
        },
    }
