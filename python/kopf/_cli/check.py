"""Command `kopf check`: mistakes in the declarations of an operator, and missing resources and permissions.

The handlers are loaded and not called; neither are startup and login handlers. The cluster is only read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import click

from kopf._cli import api_discovery
from kopf._cli.connections import find_connection
from kopf._cli.namespace_check import describe_unmatched
from kopf._intents.handlers import (
    ChangingHandler,
    ReconcilingHandler,
    SpawningHandler,
    WebhookHandler,
)
from kopf._intents.namespaces import Namespaces
from kopf._intents.registries import OperatorRegistry, cache_declarations, resource_handlers
from kopf._intents.selectors import Selector, is_exact_namespace
from kopf._objects.credentials import LoginError
from kopf._objects.resources import Resource
from kopf._objects.suggestions import did_you_mean
from kopf._runtime import handler_checks, loaders
from kopf._runtime.banner import describe_handlers
from kopf._runtime.default_registry import get_default_registry
from kopf._testing.client import ApiError, Client

ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Permission(NamedTuple):
    """A permission of the operator in a namespace, or in the whole cluster (empty)."""

    verb: str
    resource: str
    group: str
    namespace: str = ""

    def __str__(self) -> str:
        group = f" of {self.group}" if self.group else ""
        where = f" in the namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{group}{where}"


def check(
    paths: Collection[str], modules: Collection[str], namespaces: Collection[str], *, offline: bool
) -> int:
    """Print the problems of the operator in these files and modules; the exit code: 1 if there are any.

    Errors of loading are raised.
    """
    loaders.preload(paths=paths, modules=modules)
    registry = get_default_registry()
    handlers = resource_handlers(registry)
    problems = list(check_declarations(registry, [*paths, *modules]))
    omission = None if not offline else "--offline is set."
    if not offline:
        found, omission = _check_cluster(registry, namespaces)
        problems += found
    problems = list(dict.fromkeys(problems))  # a function can have several decorators
    for problem in problems:
        click.echo(f"- {problem}")
    if omission is not None:
        click.echo(f"The cluster is not checked: {omission}")
    count = f"{len(problems)} problem{'' if len(problems) == 1 else 's'}" if problems else "no problems"
    click.echo(f"{describe_handlers(handlers)}: {count}.")
    return 1 if problems else 0


def check_declarations(registry: OperatorRegistry, sources: Collection[str]) -> Iterator[str]:
    """Find mistakes in the declarations of the handlers; no cluster is needed."""
    handlers = resource_handlers(registry)
    if not handlers and not registry.has_handlers:
        yield f"No handlers are declared in {', '.join(sources)}."
    indices = [handler.id for handler in registry._indexing.get_all_handlers()]
    yield from handler_checks.check([*registry._activities.get_all_handlers(), *handlers], indices)


def _check_cluster(registry: OperatorRegistry, namespaces: Collection[str]) -> tuple[list[str], str | None]:
    """The problems, and the reason why the cluster is not checked, if it is not."""
    try:
        connection = find_connection()
        client = Client(connection) if connection is not None else None
    except (LoginError, OSError, ValueError, KeyError) as error:
        return [f"There are no valid credentials: {error}"], None
    if connection is None or client is None:
        return [], "there is neither a kubeconfig nor a service account of a pod."
    try:
        resources = api_discovery.discover(client.call)
        resolved = resolve(registry, resources)
        problems = list(_check_selectors(resolved, resources))
        problems += describe_unmatched(client, namespaces)
        permissions = required_permissions(resolved, namespaces)
        problems += [f"The permission to {item} is missing." for item in _missing(client, permissions)]
        return problems, None
    except ApiError as error:
        if error.code not in (401, 403):
            raise
        return [
            f"The API server {connection.server} rejects the credentials ({error.code} {error.reason})."
        ], None
    except OSError as error:
        return [f"The API server {connection.server} cannot be reached: {error}"], None
    finally:
        client.close()


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


def required_permissions(resolved: Resolved, namespaces: Collection[str]) -> list[Permission]:
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
        crds = ("customresourcedefinitions", "apiextensions.k8s.io")
        found += [Permission(verb, *crds) for verb in ("list", "watch")]
        if namespaces:
            found += [Permission(verb, "namespaces", "") for verb in ("list", "watch")]
        found += [Permission("create", "events", "", namespace) for namespace in exact or [""]]
    return list(dict.fromkeys(found))


def _missing(client: Client, permissions: Iterable[Permission]) -> Iterator[Permission]:
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
        if not client.call("POST", ACCESS_REVIEWS, review)["status"].get("allowed"):
            yield item
