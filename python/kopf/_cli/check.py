"""Command `kopf check`: mistakes in the declarations of an operator, and missing resources and permissions.

The startup, login and cleanup handlers of the operator are called, so that its settings and credentials are
known. Other handlers are not called. Kopf only reads the cluster. With `--offline`, no handler is called.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import click

from kopf._cli.error_report import explain
from kopf._cli.namespace_check import describe_unmatched
from kopf._intents.handlers import (
    ChangingHandler,
    ReconcilingHandler,
    SpawningHandler,
    WebhookHandler,
)
from kopf._intents.namespaces import Namespaces
from kopf._intents.registries import (
    OperatorRegistry,
    activity_handlers,
    cache_declarations,
    resource_handlers,
)
from kopf._intents.selectors import Selector, is_exact_namespace
from kopf._intents.settings import OperatorSettings
from kopf._objects.apierrors import ApiError
from kopf._objects.credentials import LoginError
from kopf._objects.reasons import Activity
from kopf._objects.resources import Resource
from kopf._objects.suggestions import did_you_mean
from kopf._runtime import bridge, handler_checks, loaders, operator
from kopf._runtime.activities import ActivityError
from kopf._runtime.banner import describe_handlers
from kopf._runtime.client.sync_api import SyncApi
from kopf._runtime.default_registry import get_default_registry
from kopf._runtime.handler_api import OperatorApi

Output = Literal["text", "json"]
WEBHOOKS = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Permission(NamedTuple):
    """A permission of the operator in a namespace, or in the whole cluster (empty)."""

    verb: str
    resource: str
    group: str
    namespace: str = ""
    unless: str = ""
    """The setting with which the permission is not necessary; empty if there is none."""

    def describe(self) -> str:
        """Describe the missing permission."""
        condition = f" It is needed unless {self.unless}." if self.unless else ""
        return f"The permission to {self} is missing.{condition}"

    def __str__(self) -> str:
        group = f" of {self.group}" if self.group else ""
        where = f" in the namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{group}{where}"


@dataclass(frozen=True)
class Problem:
    """A finding of the command."""

    kind: Literal[
        "declaration", "startup", "credentials", "connection", "resource", "namespace", "permission"
    ]
    text: str
    permission: Permission | None = None

    def to_json(self) -> dict[str, Any]:
        """The problem in the output of `-o json`."""
        permission = self.permission._asdict() if self.permission is not None else None
        return {"kind": self.kind, "text": self.text, "permission": permission}


def check(
    paths: Collection[str],
    modules: Collection[str],
    namespaces: Collection[str],
    *,
    offline: bool,
    output: Output = "text",
) -> int:
    """Print the problems of the operator in these files and modules; the exit code: 1 if there are any.

    Errors of loading are raised.
    """
    found: list[Problem] = []
    # The output of the author's code must not be in the report.
    with contextlib.redirect_stdout(sys.stderr) if output == "json" else contextlib.nullcontext():
        loaders.preload(paths=paths, modules=modules)
        registry = get_default_registry()
        omission = "--offline is set." if offline else _find_omission(registry)
        if omission is None:
            found = _check_cluster(registry, namespaces)
    # Not earlier: startup handlers may declare handlers.
    declared = [Problem("declaration", text) for text in check_declarations(registry, [*paths, *modules])]
    problems = list(dict.fromkeys([*declared, *found]))  # a function can have several decorators
    summary = describe_handlers(resource_handlers(registry))
    if output == "json":
        report = {"operator": summary, "skipped": omission, "problems": [item.to_json() for item in problems]}
        click.echo(json.dumps(report, indent=2))
        return 1 if problems else 0
    for problem in problems:
        click.echo(f"- {problem.text}")
    if omission is not None:
        click.echo(f"The cluster is not checked: {omission}")
    count = f"{len(problems)} problem{'' if len(problems) == 1 else 's'}" if problems else "no problems"
    click.echo(f"{summary}: {count}.")
    return 1 if problems else 0


def check_declarations(registry: OperatorRegistry, sources: Collection[str]) -> Iterator[str]:
    """Find mistakes in the declarations of the handlers; no cluster is needed."""
    handlers = resource_handlers(registry)
    if not handlers and not registry.has_handlers:
        yield f"No handlers are declared in {', '.join(sources)}."
    indices = [handler.id for handler in registry._indexing.get_all_handlers()]
    yield from handler_checks.check([*registry._activities.get_all_handlers(), *handlers], indices)


def _find_omission(registry: OperatorRegistry) -> str | None:
    """The reason why the cluster is not checked, if it is not."""
    logins = activity_handlers(registry).get_handlers(Activity.AUTHENTICATION)
    if not all(handler._fallback for handler in logins):
        return None
    if bridge.has_named_kubeconfig() or bridge.has_kubeconfig() or bridge.has_service_account():
        return None
    return "there is neither a kubeconfig nor a service account of a pod."


def _check_cluster(registry: OperatorRegistry, namespaces: Collection[str]) -> list[Problem]:
    """Check the cluster between the startup and the cleanup of the operator."""
    settings = OperatorSettings()
    problems: list[Problem] = []

    async def inspect(provider: OperatorApi) -> None:
        try:
            api = await provider.provide_blocking()
            # Of the operator's settings, the startup handlers have changed some by now.
            found = await asyncio.to_thread(
                _inspect, api.using(retries=False), registry, namespaces, settings
            )
            problems.extend(found)
        except (ActivityError, LoginError) as error:
            problems.append(
                Problem("credentials", f"There are no valid credentials: {_explain_login(error)}")
            )
        except ApiError as error:
            problems.append(Problem("connection", f"The cluster cannot be checked: {error}"))

    coroutine = operator.run_inspection(
        inspect,
        registry=registry,
        settings=settings,
        namespaces=namespaces,
        clusterwide=not namespaces,
    )
    try:
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(coroutine)
    except ActivityError as error:
        problems.append(Problem("startup", explain(error)))
    return problems


def _explain_login(error: Exception) -> str:
    # The engine leaves the output of plugins out of logs; it is shown to the user of the command.
    if isinstance(error, LoginError) and bridge.has_kubeconfig() and bridge.has_exec_plugin():
        failure = bridge.read_referenced_credentials()
        if isinstance(failure, str):
            return failure
    return explain(error)


def _inspect(
    api: SyncApi, registry: OperatorRegistry, namespaces: Collection[str], settings: OperatorSettings
) -> list[Problem]:
    resources = api.resources()
    resolved = resolve(registry, resources)
    problems = [Problem("resource", text) for text in _check_selectors(resolved, resources)]
    problems += [Problem("namespace", text) for text in describe_unmatched(api, namespaces)]
    permissions = required_permissions(resolved, namespaces, settings)
    if any(isinstance(handler, WebhookHandler) for handler in resource_handlers(registry)):
        permissions += _webhook_permissions(settings)
    permissions += _peering_permissions(api, resources, namespaces, settings)
    problems += [Problem("permission", item.describe(), item) for item in _missing(api, permissions)]
    return problems


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
    return {kind: kind.selector.select(resources) for kind in _required_kinds(registry)}


def _required_kinds(registry: OperatorRegistry) -> Iterator[RequiredKind]:
    for handler in resource_handlers(registry):
        if handler.selector is None or isinstance(handler, WebhookHandler):
            continue
        source = handler_checks.locate(handler.fn)
        is_written = isinstance(handler, (ChangingHandler, SpawningHandler, ReconcilingHandler))
        yield RequiredKind(source, handler.selector, is_written)
        if isinstance(handler, ReconcilingHandler):
            for owned in handler.owns:
                yield RequiredKind(source, owned.selector)
            for watched in handler.watches:
                yield RequiredKind(source, watched.selector, namespaces=watched.namespaces)
    for cache in cache_declarations(registry):
        yield RequiredKind(f"the cache {cache.id!r}", cache.selector, namespaces=cache.namespaces)


def _check_selectors(resolved: Resolved, resources: Collection[Resource]) -> Iterator[str]:
    for kind, selected in resolved.items():
        selector = kind.selector
        if not selector.is_specific:
            continue
        name = next(
            value
            for value in (
                selector.any_name,
                selector.plural,
                selector.singular,
                selector.kind,
                selector.shortcut,
            )
            if value is not None
        )
        if not selected:
            known = {text for item in resources for text in (item.plural, item.singular, item.kind) if text}
            hint = did_you_mean(str(name), known)
            text = f"The cluster has no resource {name!r} for {kind.source}{hint}"
            yield f"{text} If the name is right, apply its CRD."
        elif len(selected) > 1:
            names = ", ".join(sorted(map(repr, selected)))
            text = f"{name!r} of {kind.source} is ambiguous: {names}."
            yield f"{text} Specify the group; none of them is served."


def required_permissions(
    resolved: Resolved, namespaces: Collection[str], settings: OperatorSettings
) -> list[Permission]:
    """The permissions that Kopf needs to serve the resources in these namespaces; in all of them if empty."""
    exact = [name for name in namespaces if is_exact_namespace(name)]
    served = exact if exact and len(exact) == len(namespaces) else [""]
    found: list[Permission] = []
    for kind, selected in resolved.items():
        if kind.selector.is_specific and len(selected) > 1:
            continue
        for resource in sorted(selected, key=repr):
            declared = [""] if kind.namespaces == "*" else kind.namespaces or served
            for namespace in declared if resource.namespaced else [""]:
                verbs = ["list", "watch", *(["patch"] if kind.is_written else [])]
                plural, group = resource.plural, resource.group
                found += [Permission(verb, plural, group, namespace) for verb in verbs]
                if kind.is_written and "status" in resource.subresources:
                    found.append(Permission("patch", f"{plural}/status", group, namespace))
    if found:
        if not settings.scanning.disabled:
            found += _scanning_permissions(namespaces)
        if settings.posting.enabled:
            unless = "settings.posting.enabled is False"
            found += [Permission("create", "events", "", namespace, unless) for namespace in exact or [""]]
    # What several parts need is described by the first one: handlers before options.
    return list({item[:4]: item for item in reversed(found)}.values())[::-1]


def _scanning_permissions(namespaces: Collection[str]) -> Iterator[Permission]:
    unless = "settings.scanning.disabled is True"
    for verb in ("list", "watch"):
        yield Permission(verb, "customresourcedefinitions", "apiextensions.k8s.io", "", unless)
    for verb in ("list", "watch") if namespaces else ():
        yield Permission(verb, "namespaces", "", "", unless)


def _webhook_permissions(settings: OperatorSettings) -> Iterator[Permission]:
    if settings.admission.managed is None:
        return
    for plural in WEBHOOKS:
        for verb in ("create", "patch"):
            group = "admissionregistration.k8s.io"
            yield Permission(verb, plural, group, "", "settings.admission.managed is None")


def _peering_permissions(
    api: SyncApi, resources: Collection[Resource], namespaces: Collection[str], settings: OperatorSettings
) -> Iterator[Permission]:
    peering = settings.peering
    if peering.standalone:
        return
    plural = "clusterkopfpeerings" if peering.clusterwide else "kopfpeerings"
    served = [item for item in resources if item.plural == plural and item.preferred]
    scopes = [name for name in namespaces if is_exact_namespace(name)] or [""]
    for resource in served:
        for namespace in scopes if resource.namespaced else [""]:
            if not peering.mandatory and not _has_peering(api, resource, peering.name, namespace):
                continue
            for verb in ("list", "watch", "patch"):
                unless = "settings.peering.standalone is True"
                yield Permission(verb, plural, resource.group, namespace, unless)


def _has_peering(api: SyncApi, resource: Resource, name: str, namespace: str) -> bool:
    """Whether the peering object exists, as far as the operator can see it: it works without it."""
    try:
        found = api.list(resource, namespace or "*", fields={"metadata.name": name})
        return len(found) > 0
    except ApiError:
        return False


def _missing(api: SyncApi, permissions: Iterable[Permission]) -> Iterator[Permission]:
    for item in permissions:
        resource, _, subresource = item.resource.partition("/")
        attributes = {
            "verb": item.verb,
            "group": item.group,
            "resource": resource,
            "subresource": subresource,
            "namespace": item.namespace,
        }
        review: dict[str, Any] = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
        }
        if not api.request("POST", ACCESS_REVIEWS, body=review).json["status"].get("allowed"):
            yield item
