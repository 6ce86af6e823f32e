"""Command `kopf manifests`: the permissions and the Deployment of an operator, from its handlers.

The startup and cleanup handlers are called, since the permissions depend on the settings. Other handlers are
not called. The cluster is only read, to resolve the names of resources.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import click
import yaml

from kopf._cli.error_report import explain
from kopf._cli.inspection import run_inspection
from kopf._cli.message_addresses import address_line
from kopf._cli.permissions import (
    WEBHOOK_GROUP,
    WEBHOOKS,
    Permission,
    has_webhooks,
    lease_permissions,
    peering_permissions,
    peering_plural,
    required_permissions,
    resolve,
    webhook_permissions,
)
from kopf._intents.registries import OperatorRegistry
from kopf._intents.serialization import has_leader_election
from kopf._intents.settings import OperatorSettings
from kopf._runtime import bridge, loaders
from kopf._runtime.activities import ActivityError
from kopf._runtime.client.connecting import connect_sync
from kopf._runtime.default_registry import get_default_registry
from kopf._runtime.handler_api import OperatorApi

RBAC = "rbac.authorization.k8s.io"
STATUS_PORT = 8080
POD_FIELDS = (
    ("POD_NAME", "metadata.name"),
    ("POD_NAMESPACE", "metadata.namespace"),
    ("POD_UID", "metadata.uid"),
)


@dataclasses.dataclass(frozen=True)
class Scale:
    """The replicas of the Deployment, and how they share the work."""

    replicas: int = 1
    leader_elect: bool = False
    """Whether the Deployment has the options of leader election, if the settings do not enable it."""


def generate(
    paths: Collection[str],
    modules: Collection[str],
    namespaces: Collection[str],
    *,
    name: str,
    home: str,
    image: str | None,
    scale: Scale,
    startup: bool,
) -> str:
    """The manifests as YAML. `home` is the namespace of the operator.

    Without an image, there is no Deployment. If `startup`, the startup handlers change the settings.
    Resources that the cluster does not have, and failed startup handlers, are a `ClickException`, and so are
    several replicas without leader election.
    """
    # The output of the author's code must not be in the manifests.
    with contextlib.redirect_stdout(sys.stderr):
        loaders.preload(paths=paths, modules=modules)
        registry = get_default_registry()
        _check_cluster_is_known()
        settings = OperatorSettings()
        settings.peering.clusterwide = not namespaces
        if startup:
            _call_startup_handlers(registry, settings, namespaces)
    options = _elect(settings, name, scale)
    permissions = _required_permissions(registry, settings, namespaces, startup=startup)
    # Without `watch`, the Lease is polled: a release is noticed later.
    permissions += lease_permissions(settings, home, ("get", "update", "watch"))
    documents = [_account(name, home), *roles(name, home, permissions)]
    if image is not None:
        patterns = [f"--namespace={pattern}" for pattern in namespaces] or ["--all-namespaces"]
        has_standbys = has_leader_election(settings)
        documents += _deployment(name, home, image, [*patterns, *options], scale, has_standbys)
    text: str = yaml.safe_dump_all(documents, sort_keys=False, explicit_start=True)
    return text


def _elect(settings: OperatorSettings, name: str, scale: Scale) -> list[str]:
    """Enable leader election in the settings on request; the options for the Deployment."""
    if has_leader_election(settings):
        return []
    if scale.leader_elect:
        settings.leadership.enabled, settings.leadership.name = True, settings.leadership.name or name
        return ["--leader-elect", f"--lease={settings.leadership.name}"]
    if scale.replicas > 1:
        raise click.UsageError(
            f"{scale.replicas} replicas would handle each object {scale.replicas} times: use --leader-elect,"
            " or settings.leadership in a startup handler."
        )
    return []


def _check_cluster_is_known() -> None:
    if not (bridge.has_named_kubeconfig() or bridge.has_kubeconfig() or bridge.has_service_account()):
        raise click.ClickException("There is neither a kubeconfig nor a service account of a pod.")


def _call_startup_handlers(
    registry: OperatorRegistry, settings: OperatorSettings, namespaces: Collection[str]
) -> None:
    async def inspect(_: OperatorApi) -> None:
        """The settings are what the command needs."""

    try:
        run_inspection(inspect, registry=registry, settings=settings, namespaces=namespaces)
    except ActivityError as error:
        text = explain(error)
        raise click.ClickException(
            f"{text} With --no-startup, no startup and cleanup handlers are called, and the "
            f"permissions are those of the default settings.{address_line(text)}"
        ) from error


def _required_permissions(
    registry: OperatorRegistry, settings: OperatorSettings, namespaces: Collection[str], *, startup: bool
) -> list[Permission]:
    with connect_sync() as api:
        resources = api.resources()
        resolved = resolve(registry, resources)
        peering = list(peering_permissions(api, resources, namespaces, settings))
    for kind, selected in resolved.items():
        if kind.selector.is_specific and len(selected) != 1:
            raise click.ClickException(
                f"The resource of {kind.source} is unknown or ambiguous: apply its CRD first."
            )
    if settings.peering.mandatory and not settings.peering.standalone and not peering:
        raise click.ClickException(
            f"The cluster has no {peering_plural(settings)}, and peering is mandatory: apply their CRD first."
        )
    permissions = [*required_permissions(resolved, namespaces, settings), *peering]
    if startup:
        return [*permissions, *webhook_permissions(registry, settings)]
    if has_webhooks(registry):
        # The name of the configurations is unknown.
        verbs = ("create", "patch")
        permissions += [Permission(verb, plural, WEBHOOK_GROUP) for plural in WEBHOOKS for verb in verbs]
    return permissions


def _account(name: str, home: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": home}}


def roles(name: str, home: str, permissions: Collection[Permission]) -> Iterator[dict[str, Any]]:
    """A ClusterRole for what is cluster-wide, a Role in each namespace for the rest; and their bindings."""
    for namespace in dict.fromkeys(permission.namespace for permission in permissions):
        kind = "Role" if namespace else "ClusterRole"
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        here = [permission for permission in permissions if permission.namespace == namespace]
        api = f"{RBAC}/v1"
        yield {"apiVersion": api, "kind": kind, "metadata": metadata, "rules": rules_of(here)}
        yield {
            "apiVersion": api,
            "kind": f"{kind}Binding",
            "metadata": metadata.copy(),
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": home}],
        }


def rules_of(permissions: Iterable[Permission]) -> list[dict[str, Any]]:
    """One rule for each resource, or for each object if the permissions name it."""
    verbs: dict[tuple[str, str, str], list[str]] = {}
    for permission in permissions:
        found = verbs.setdefault((permission.group, permission.resource, permission.name), [])
        if permission.verb not in found:
            found.append(permission.verb)
    return [
        {
            "apiGroups": [group],
            "resources": [resource],
            **({"resourceNames": [name]} if name else {}),
            "verbs": found,
        }
        for (group, resource, name), found in verbs.items()
    ]


def _deployment(
    name: str, home: str, image: str, options: Collection[str], scale: Scale, has_standbys: bool
) -> Iterator[dict[str, Any]]:
    """The Deployment; and, for several replicas, a PodDisruptionBudget. Replicas of a leader election are
    replaced one after the other, since the next one stands by until the previous one has released the lease.
    """
    # Copies: YAML would have references.
    labels = {"app": name}.copy
    container = {
        "name": "operator",
        "image": image,
        **({"env": [_field_of_pod(*pair) for pair in POD_FIELDS]} if has_standbys else {}),
        "args": [*options, f"--liveness=http://0.0.0.0:{STATUS_PORT}/healthz"],
        "ports": [{"name": "status", "containerPort": STATUS_PORT}],
        "startupProbe": _probe("/startupz", period=5, failures=60),
        "livenessProbe": _probe("/livez", period=20, failures=3),
        "readinessProbe": _probe("/readyz", period=10, failures=2),
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels()},
    }
    template = {
        "serviceAccountName": name,
        "terminationGracePeriodSeconds": 60,
        **({"topologySpreadConstraints": [spread]} if has_standbys else {}),
        "containers": [container],
    }
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    yield {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": home},
        "spec": {
            "replicas": scale.replicas,
            "strategy": rolling if has_standbys else {"type": "Recreate"},
            "selector": {"matchLabels": labels()},
            "template": {"metadata": {"labels": labels()}, "spec": template},
        },
    }
    if scale.replicas > 1:
        yield {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": home},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels()}},
        }


def _field_of_pod(variable: str, path: str) -> dict[str, Any]:
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _probe(path: str, *, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "status"},
        "periodSeconds": period,
        "timeoutSeconds": 3,
        "failureThreshold": failures,
    }
