"""Permissions that Kopf needs for an operator, and those that are missing in the cluster."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kopf._cli.kubeconfigs import default_namespace
from kopf._intents.handlers import (
    ChangingHandler,
    ReconcilingHandler,
    SpawningHandler,
    WatchingHandler,
    WebhookHandler,
)
from kopf._intents.namespaces import Namespaces
from kopf._intents.registries import OperatorRegistry, cache_declarations, resource_handlers
from kopf._intents.selectors import Selector, is_exact_namespace
from kopf._intents.serialization import has_leader_election
from kopf._intents.settings import OperatorSettings
from kopf._kits.webhooks.servers import WebhookServer
from kopf._objects.apierrors import ApiError
from kopf._objects.resources import Resource
from kopf._runtime.api_argument import named_arguments
from kopf._runtime.client.sync_api import SyncApi
from kopf._runtime.functions import locate

PATCH = "patch"
"""The argument by which event handlers write to their objects. They need not."""

WEBHOOKS = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")

WEBHOOK_GROUP = "admissionregistration.k8s.io"


class Permission(NamedTuple):
    """A permission of the operator in a namespace, or in the whole cluster (empty)."""

    verb: str
    resource: str
    group: str
    namespace: str = ""
    unless: str = ""
    """The setting with which the permission is not necessary; empty if there is none."""
    name: str = ""
    """The only object for which it is needed; empty for all objects."""
    source: str = ""
    """The place of the declaration that needs it; empty if the settings do."""

    def describe(self) -> str:
        """Describe the missing permission."""
        condition = f" It is needed unless {self.unless}." if self.unless else ""
        return f"The permission to {self} is missing.{condition}"

    def __str__(self) -> str:
        group = f" of {self.group}" if self.group else ""
        name = f" named {self.name!r}" if self.name else ""
        where = f" in the namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{group}{name}{where}"


@dataclass(frozen=True, eq=False)
class RequiredKind:
    """A kind that a handler or a cache needs."""

    source: str
    """The place of the declaration."""
    selector: Selector
    is_written: bool = False
    """Whether Kopf patches the objects."""
    namespaces: Namespaces = None
    """None: those of the operator."""


Resolved = Mapping[RequiredKind, Collection[Resource]]


def resolve(registry: OperatorRegistry, resources: Collection[Resource]) -> Resolved:
    """The resources of the kinds that the handlers and caches of the registry need."""
    return {
        kind: [resource for resource in kind.selector.select(resources) if is_watchable(resource)]
        for kind in _required_kinds(registry)
    }


def is_watchable(resource: Resource) -> bool:
    """Whether an operator can serve the resource: it can be listed and watched, if its verbs are known."""
    return not resource.verbs or resource.verbs >= {"list", "watch"}


def _required_kinds(registry: OperatorRegistry) -> Iterator[RequiredKind]:
    for handler in resource_handlers(registry):
        if handler.selector is None or isinstance(handler, WebhookHandler):
            continue
        source = locate(handler.fn)
        is_written = isinstance(handler, (ChangingHandler, SpawningHandler, ReconcilingHandler)) or (
            isinstance(handler, WatchingHandler) and PATCH in named_arguments(handler.fn)
        )
        yield RequiredKind(source, handler.selector, is_written)
        if isinstance(handler, ReconcilingHandler):
            for owned in handler.owns:
                yield RequiredKind(source, owned.selector)
            for watched in handler.watches:
                yield RequiredKind(source, watched.selector, namespaces=watched.namespaces)
    for cache in cache_declarations(registry):
        yield RequiredKind(f"the cache {cache.id!r}", cache.selector, namespaces=cache.namespaces)


def required_permissions(
    resolved: Resolved,
    namespaces: Collection[str],
    settings: OperatorSettings,
    *,
    reviews: bool = False,
    home: str = "",
) -> list[Permission]:
    """The permissions that Kopf needs to serve the resources in these namespaces; in all of them if empty.

    With `reviews`, there are admission handlers. `home` is the namespace of the operator; if it is unknown,
    it is that of the current credentials.
    """
    served = known_namespaces(namespaces)
    found: list[Permission] = []
    for kind, selected in resolved.items():
        if kind.selector.is_ambiguous(selected):
            continue
        for resource in sorted(selected, key=repr):
            declared = [""] if kind.namespaces == "*" else kind.namespaces or served
            for namespace in declared if resource.namespaced else [""]:
                verbs = ["list", "watch", *(["patch"] if kind.is_written else [])]
                plural, group = resource.plural, resource.group
                source = kind.source
                found += [Permission(verb, plural, group, namespace, source=source) for verb in verbs]
                if kind.is_written and "status" in resource.subresources:
                    found.append(Permission("patch", f"{plural}/status", group, namespace, source=source))
    is_posting = bool(found) and settings.posting.enabled
    # Kopf also waits for resources that do not exist yet.
    if (resolved or reviews) and not settings.scanning.disabled:
        found += _scanning_permissions(namespaces)
    if is_posting:
        unless = "settings.posting.enabled is False"
        places = list(served)
        if _writes_clusterwide(resolved) and "" not in places:
            # Events about objects without a namespace are in that of the credentials.
            places.append(home or default_namespace() or "default")
        found += [Permission("create", "events", "", namespace, unless) for namespace in places]
    # What several parts need is described by the first one: handlers before options.
    return list({item[:4]: item for item in reversed(found)}.values())[::-1]


def all_permissions(
    api: SyncApi,
    registry: OperatorRegistry,
    resolved: Resolved,
    resources: Collection[Resource],
    namespaces: Collection[str],
    settings: OperatorSettings,
) -> list[Permission]:
    """All permissions that the operator needs in the cluster."""
    return [
        *required_permissions(resolved, namespaces, settings, reviews=has_webhooks(registry)),
        *webhook_permissions(registry, settings),
        *lease_permissions(settings),
        *peering_permissions(api, resources, namespaces, settings),
    ]


def _writes_clusterwide(resolved: Resolved) -> bool:
    written = (selected for kind, selected in resolved.items() if kind.is_written)
    return any(not resource.namespaced for selected in written for resource in selected)


def known_namespaces(namespaces: Collection[str]) -> list[str]:
    """The namespaces if all of them are names, else all namespaces: patterns can match any."""
    is_exact = namespaces and all(is_exact_namespace(name) for name in namespaces)
    return list(namespaces) if is_exact else [""]


def _scanning_permissions(namespaces: Collection[str]) -> Iterator[Permission]:
    unless = "settings.scanning.disabled is True"
    for verb in ("list", "watch"):
        yield Permission(verb, "customresourcedefinitions", "apiextensions.k8s.io", "", unless)
    for verb in ("list", "watch") if namespaces else ():
        yield Permission(verb, "namespaces", "", "", unless)


def webhook_permissions(
    registry: OperatorRegistry, settings: OperatorSettings, home: str = ""
) -> Iterator[Permission]:
    """The permissions for the webhook configurations that Kopf manages, if there are admission handlers; and
    for the Secret of the webhook server. `home` is the namespace of the operator; if it is unknown, it is
    that of the current credentials.
    """
    yield from _secret_permissions(settings, home)
    name = settings.admission.managed
    if name is None or not has_webhooks(registry):
        return
    unless = "settings.admission.managed is None"
    for plural in WEBHOOKS:
        # Names do not limit the creation of objects.
        yield Permission("create", plural, WEBHOOK_GROUP, unless=unless)
        yield Permission("patch", plural, WEBHOOK_GROUP, unless=unless, name=name)


def _secret_permissions(settings: OperatorSettings, home: str) -> Iterator[Permission]:
    secret = shared_secret(settings, home)
    if secret is None:
        return
    namespace, name = secret
    unless = "the webhook server has no secret"
    # Names do not limit the creation of objects.
    yield Permission("create", "secrets", "", namespace, unless)
    for verb in ("get", "patch"):
        yield Permission(verb, "secrets", "", namespace, unless, name=name)


def shared_secret(settings: OperatorSettings, home: str = "") -> tuple[str, str] | None:
    """The namespace and the name of the Secret with the certificate of the webhook server, if it has one."""
    server = settings.admission.server
    if not isinstance(server, WebhookServer) or not server.secret:
        return None
    namespace, _, name = server.secret.rpartition("/")
    pod_namespace = os.environ.get("POD_NAMESPACE")
    return namespace or home or pod_namespace or default_namespace() or "default", name


def lease_permissions(
    settings: OperatorSettings, home: str = "", verbs: Sequence[str] = ("get", "update")
) -> Iterator[Permission]:
    """The permissions for the Lease of the leader election, if there is one. `home` is the namespace of the
    operator; if it is unknown, it is that of the pod or of the current credentials, as for an operator.
    """
    if not has_leader_election(settings):
        return
    unless = "settings.leadership.enabled is False"
    leadership = settings.leadership
    namespace = leadership.namespace or home or os.environ.get("POD_NAMESPACE") or default_namespace()
    if not namespace:
        return
    # Names do not limit the creation of objects.
    yield Permission("create", "leases", "coordination.k8s.io", namespace, unless)
    for verb in verbs:
        name = leadership.name or ""
        yield Permission(verb, "leases", "coordination.k8s.io", namespace, unless, name=name)


def uninstall_permissions(
    api: SyncApi,
    registry: OperatorRegistry,
    resolved: Resolved,
    namespaces: Collection[str],
    settings: OperatorSettings,
    home: str,
) -> Iterator[Permission]:
    """The permissions of `kopf uninstall`: for the handled objects, webhook configurations, peerings, and the
    Lease in the namespace `home` of the operator.
    """
    served = known_namespaces(namespaces)
    for kind, selected in resolved.items():
        for resource in sorted(selected, key=repr) if kind.is_written else ():
            for namespace in served if resource.namespaced else [""]:
                for verb in ("list", "patch"):
                    yield Permission(verb, resource.plural, resource.group, namespace, source=kind.source)
    if settings.admission.managed is not None:
        for plural in WEBHOOKS:
            for verb in ("get", "delete"):
                yield Permission(verb, plural, WEBHOOK_GROUP, name=settings.admission.managed)
    secret = shared_secret(settings, home)
    if secret is not None:
        namespace, name = secret
        for verb in ("get", "delete"):
            yield Permission(verb, "secrets", "", namespace, name=name)
    lease = lease_permissions(settings, home, ("get", "delete"))
    yield from (permission for permission in lease if permission.verb != "create")
    yield from peering_permissions(api, api.resources(), namespaces, settings)


def has_webhooks(registry: OperatorRegistry) -> bool:
    """Whether the registry has admission handlers."""
    return any(isinstance(handler, WebhookHandler) for handler in resource_handlers(registry))


def peering_permissions(
    api: SyncApi, resources: Collection[Resource], namespaces: Collection[str], settings: OperatorSettings
) -> Iterator[Permission]:
    """The permissions for the peering objects, if the operator takes part in peering."""
    peering = settings.peering
    if peering.standalone:
        return
    plural = peering_plural(settings)
    served = [item for item in resources if item.plural == plural and item.preferred]
    unless = "settings.peering.standalone is True"
    for resource in served:
        group = resource.group
        written = f"{plural}/status" if "status" in resource.subresources else plural
        for namespace in known_namespaces(namespaces) if resource.namespaced else [""]:
            if not peering.mandatory and not _has_peering(api, resource, peering.name, namespace):
                continue
            # Kopf watches all peering objects, and patches its own.
            for verb in ("list", "watch"):
                yield Permission(verb, plural, group, namespace, unless)
            yield Permission("patch", written, group, namespace, unless, name=peering.name)


def peering_plural(settings: OperatorSettings) -> str:
    """The plural name of the peering objects that the operator uses."""
    return "clusterkopfpeerings" if settings.peering.clusterwide else "kopfpeerings"


def _has_peering(api: SyncApi, resource: Resource, name: str, namespace: str) -> bool:
    """Whether the peering object exists, as far as the operator can see it: it works without it."""
    try:
        found = api.list(resource, namespace or "*", fields={"metadata.name": name})
        return len(found) > 0
    except ApiError:
        return False
