"""Command `kopf manifests`: the permissions and the Deployment of an operator, from its handlers.

The startup and cleanup handlers are called, since the permissions depend on the settings. Other handlers are
not called. The cluster is only read, to resolve the names of resources.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import click
import yaml

from kopf._cli.error_report import explain
from kopf._cli.inspection import run_inspection
from kopf._cli.manifest_files import COMMENT, read_documents
from kopf._cli.manifest_objects import (
    WEBHOOK_PORT,
    Document,
    Monitor,
    Workload,
    alert_rules,
    dashboard,
    deployment,
    network_policy,
    services,
    uninstall_job,
)
from kopf._cli.message_addresses import address_line
from kopf._cli.permissions import (
    WEBHOOK_GROUP,
    WEBHOOKS,
    Permission,
    has_webhooks,
    known_namespaces,
    lease_permissions,
    peering_permissions,
    peering_plural,
    required_permissions,
    resolve,
    uninstall_permissions,
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


@dataclasses.dataclass(frozen=True)
class Scale:
    """The replicas of the Deployment, and how they share the work."""

    replicas: int = 1
    leader_elect: bool = False
    """Whether the Deployment has the options of leader election, if the settings do not enable it."""


@dataclasses.dataclass(frozen=True)
class Operator:
    """The operator whose manifests are generated."""

    paths: Sequence[str]
    modules: Sequence[str]
    namespaces: Sequence[str]
    name: str = "operator"
    home: str = "default"
    """The namespace of the operator itself."""
    image: str | None = None
    """Without an image, there are no pods, and nothing that belongs to them."""
    startup: bool = True
    """Whether the startup handlers change the settings."""


@dataclasses.dataclass(frozen=True)
class Parts:
    """The optional parts of the manifests."""

    monitor: Monitor = "service"
    rules: bool = False
    """Whether there are alerts."""
    dashboard: bool = False
    api_servers: Sequence[str] | None = None
    """The addresses of the API server for the NetworkPolicy; None for no NetworkPolicy."""
    monitoring: str = "monitoring"
    """The namespace from which metrics are scraped, for the NetworkPolicy."""
    crds: pathlib.Path | None = None
    extra_rules: pathlib.Path | None = None


@dataclasses.dataclass(frozen=True)
class ExtraRule:
    """A rule that the author adds."""

    rule: Document
    is_clusterwide: bool
    """Whether it is of a ClusterRole; otherwise, it is for the served namespaces."""


def generate(operator: Operator, scale: Scale, parts: Parts) -> list[Document]:
    """The manifests, what is needed by others first.

    Resources that the cluster does not have, failed startup handlers and unreadable files are a
    `ClickException`, and so are several replicas without leader election.
    """
    name, home, namespaces = operator.name, operator.home, operator.namespaces
    crds = _read_crds(parts.crds) if parts.crds is not None else []
    extra = _read_rules(parts.extra_rules) if parts.extra_rules is not None else []
    registry, settings = _load(operator)
    options = _elect(settings, name, scale)
    permissions = _required_permissions(registry, settings, operator)
    # Without `watch`, the Lease is polled: a release is noticed later.
    permissions += lease_permissions(settings, home, ("get", "update", "watch"))
    documents = [*crds, _account(name, home), *roles(name, home, permissions, extra, namespaces)]
    if operator.image is not None:
        patterns = [f"--namespace={pattern}" for pattern in namespaces] or ["--all-namespaces"]
        workload = Workload(
            name,
            home,
            operator.image,
            args=[*patterns, *options],
            replicas=scale.replicas,
            has_standbys=has_leader_election(settings),
            webhook_port=_webhook_port(registry, settings),
        )
        documents += deployment(workload)
        documents += services(workload, parts.monitor)
        if parts.api_servers is not None:
            documents.append(network_policy(workload, parts.api_servers, parts.monitoring))
    if parts.rules:
        documents.append(alert_rules(name, home, parts.monitor))
    if parts.dashboard:
        documents.append(dashboard(name, home))
    return documents


def generate_uninstall_job(operator: Operator, scale: Scale) -> list[Document]:
    """The Job that removes what the operator has left in the cluster, with its account."""
    if operator.image is None:
        raise click.UsageError("The Job of --uninstall-job needs the image of the operator: --image=IMAGE.")
    name, home, namespaces = f"{operator.name}-uninstall", operator.home, operator.namespaces
    registry, settings = _load(operator)
    elected = [option for option in _elect(settings, operator.name, scale) if option.startswith("--lease")]
    with connect_sync() as api:
        resources = api.resources()
        resolved = resolve(registry, resources)
        for kind, selected in resolved.items():
            if kind.selector.is_ambiguous(selected):
                raise click.ClickException(f"The resource of {kind.source} is ambiguous: specify the group.")
        permissions = list(uninstall_permissions(api, registry, resolved, namespaces, settings, home))
    sources = [f"--namespace={pattern}" for pattern in namespaces] or ["--all-namespaces"]
    sources += [f"--module={module}" for module in operator.modules]
    workload = Workload(operator.name, home, operator.image, args=[])
    job = uninstall_job(workload, [*sources, *elected, *operator.paths])
    return [_account(name, home), *roles(name, home, permissions), job]


def _load(operator: Operator) -> tuple[OperatorRegistry, OperatorSettings]:
    # The output of the author's code must not be in the manifests.
    with contextlib.redirect_stdout(sys.stderr):
        loaders.preload(paths=operator.paths, modules=operator.modules)
        registry = get_default_registry()
        _check_cluster_is_known()
        settings = OperatorSettings()
        settings.peering.clusterwide = not operator.namespaces
        if operator.startup:
            _call_startup_handlers(registry, settings, operator.namespaces)
    return registry, settings


def _read_crds(folder: pathlib.Path) -> list[Document]:
    """All CRDs in the YAML files of the folder."""
    found = [
        document
        for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])
        for document in _read_documents(path)
        if isinstance(document, dict) and document.get("kind") == "CustomResourceDefinition"
    ]
    if not found:
        raise click.ClickException(f"There is no CustomResourceDefinition in the files of {folder}.")
    return found


def _read_rules(path: pathlib.Path) -> list[ExtraRule]:
    """The rules in a file: a list, or the rules of a Role or ClusterRole."""
    found = [
        ExtraRule(rule, isinstance(document, dict) and document.get("kind") == "ClusterRole")
        for document in _read_documents(path)
        for rule in (document.get("rules") or () if isinstance(document, dict) else document)
    ]
    if not all(isinstance(rule.rule, dict) and "verbs" in rule.rule for rule in found):
        raise click.ClickException(f"The file {path} must have a list of rules with verbs, or a Role.")
    return found


def _read_documents(path: pathlib.Path) -> list[Any]:
    try:
        return read_documents(path)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise click.ClickException(f"The file {path} cannot be read: {error}") from None


def _webhook_port(registry: OperatorRegistry, settings: OperatorSettings) -> int | None:
    """The port of the webhook server, if there are admission handlers."""
    if not has_webhooks(registry):
        return None
    port = getattr(settings.admission.server, "port", None)
    return port if isinstance(port, int) else WEBHOOK_PORT


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
    registry: OperatorRegistry, settings: OperatorSettings, operator: Operator
) -> list[Permission]:
    namespaces, reviews = operator.namespaces, has_webhooks(registry)
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
    permissions = required_permissions(resolved, namespaces, settings, reviews=reviews, home=operator.home)
    permissions += peering
    if operator.startup:
        return [*permissions, *webhook_permissions(registry, settings, operator.home)]
    if reviews:
        # The name of the configurations is unknown.
        verbs = ("create", "patch")
        permissions += [Permission(verb, plural, WEBHOOK_GROUP) for plural in WEBHOOKS for verb in verbs]
    return permissions


def _account(name: str, home: str) -> Document:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": home}}


def roles(
    name: str,
    home: str,
    permissions: Collection[Permission],
    extra: Sequence[ExtraRule] = (),
    served: Sequence[str] = (),
) -> Iterator[Document]:
    """A ClusterRole for what is cluster-wide, a Role in each namespace for the rest; and their bindings.

    Further rules are added to the Roles of the served namespaces if all are exact names, else to the
    ClusterRole; those of a ClusterRole to the ClusterRole.
    """
    known = known_namespaces(served)
    added = {place for rule in extra for place in ([""] if rule.is_clusterwide else known)}
    needed = [permission.namespace for permission in permissions]
    places = list(dict.fromkeys([*needed, *sorted(added)])) or known
    for namespace in places:
        kind = "Role" if namespace else "ClusterRole"
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        here = [permission for permission in permissions if permission.namespace == namespace]
        rules = rules_of(here, is_commented=True)
        rules += [
            {COMMENT: "added by --extra-rules", **rule.rule}
            for rule in extra
            if namespace in ([""] if rule.is_clusterwide else known)
        ]
        api = f"{RBAC}/v1"
        yield {"apiVersion": api, "kind": kind, "metadata": metadata, "rules": rules}
        yield {
            "apiVersion": api,
            "kind": f"{kind}Binding",
            "metadata": metadata.copy(),
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": home}],
        }


def rules_of(permissions: Iterable[Permission], *, is_commented: bool = False) -> list[Document]:
    """One rule for each resource, or for each object if the permissions name it."""
    grouped: dict[tuple[str, str, str], list[Permission]] = {}
    for permission in permissions:
        grouped.setdefault((permission.group, permission.resource, permission.name), []).append(permission)
    return [
        {
            **({COMMENT: _reason(found)} if is_commented else {}),
            "apiGroups": [group],
            "resources": [resource],
            **({"resourceNames": [name]} if name else {}),
            "verbs": list(dict.fromkeys(permission.verb for permission in found)),
        }
        for (group, resource, name), found in grouped.items()
    ]


def _reason(permissions: Iterable[Permission]) -> str:
    """Why the permissions are needed. Lines of code would change the manifests with each edit."""
    reasons = dict.fromkeys(
        f"unless {permission.unless}" if permission.unless else re.sub(r":[0-9]+\)", ")", permission.source)
        for permission in permissions
    )
    return ", ".join(filter(None, reasons)) or "needed by Kopf"
