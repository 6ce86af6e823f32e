"""The kinds whose objects a command inspects, with what the operator does for them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from kopf._cli.cluster_session import Session
from kopf._cli.permissions import is_watchable
from kopf._intents import serialization
from kopf._intents.handlers import (
    ChangingHandler,
    IndexingHandler,
    ReconcilingHandler,
    ResourceHandler,
    SpawningHandler,
    WatchingHandler,
    WebhookHandler,
)
from kopf._intents.registries import resource_handlers
from kopf._intents.selectors import Selector, is_exact_namespace, is_served
from kopf._objects.bodies import Body, release_views
from kopf._objects.resources import Resource, serialize_resource
from kopf._objects.suggestions import did_you_mean
from kopf._runtime import bridge
from kopf._runtime.custom_storages import FetchedState, fetch_essences

CHUNK = 500


@dataclass(frozen=True)
class InspectedKind:
    """A kind, with the finalizers and the handlers of the operator for it."""

    resource: Resource
    finalizers: Sequence[str]
    handlers: Sequence[ResourceHandler] | None = field(default=None)
    """None: the handlers are unknown."""


def select_kinds(
    session: Session, names: Collection[str], *, may_be_none: bool = False
) -> list[InspectedKind]:
    """The kinds of these names; without names, those of the handlers that leave a state on objects.

    Raises:
        click.ClickException: There are none, unless there may be none.
    """
    resources = session.resources
    handlers = _by_resource(session, resources) if session.has_handlers else {}
    if names:
        selected = [find_resource(name, resources) for name in names]
        unique = list(dict.fromkeys(selected))
    else:
        unique = [
            resource
            for resource, found in handlers.items()
            if any(isinstance(one, (ChangingHandler, SpawningHandler, ReconcilingHandler)) for one in found)
        ]
        if not unique and not may_be_none:
            selectors = [one.selector for one in resource_handlers(session.registry) if one.selector]
            raise click.ClickException(
                "The handlers leave no state on objects."
                if any(selector.select(resources) for selector in selectors)
                else "The cluster has none of the resources of the handlers: apply their CRDs."
            )
    known = session.has_handlers
    return [
        _describe(session, resource, handlers.get(resource, []) if known else None) for resource in unique
    ]


def _by_resource(session: Session, resources: Collection[Resource]) -> dict[Resource, list[ResourceHandler]]:
    found: dict[Resource, list[ResourceHandler]] = {}
    for handler in resource_handlers(session.registry):
        if handler.selector is None or isinstance(handler, WebhookHandler):
            continue
        for resource in _served(handler, handler.selector.select(resources)):
            found.setdefault(resource, []).append(handler)
    return found


def _served(handler: ResourceHandler, selected: Collection[Resource]) -> list[Resource]:
    """The resources that an operator serves: of an ambiguous name none, and none that cannot be watched."""
    if handler.selector is not None and handler.selector.is_ambiguous(selected):
        names = ", ".join(sorted(map(repr, selected)))
        raise click.UsageError(
            f"The resource of {handler.id!r} is ambiguous: {names}. No operator serves it: specify the group."
        )
    return [resource for resource in selected if is_watchable(resource)]


def qualified_name(resource: Resource) -> str:
    """The plural name with the group, such as `sites.example.com`."""
    return f"{resource.plural}.{resource.group}".removesuffix(".")


def identity(resource: Resource, name: str | None, namespace: str | None) -> dict[str, Any]:
    """The fields that identify an object in the output of `-o json`."""
    return {
        "apiVersion": f"{resource.group}/{resource.version}".removeprefix("/"),
        "kind": resource.kind,
        "namespace": namespace,
        "name": name,
    }


def find_resource(name: str, resources: Collection[Resource]) -> Resource:
    """The resource of a name, by the same rules as for handlers."""
    named = list(Selector(name).select(resources))
    if len(named) == 1:
        return named[0]
    if named:
        names = ", ".join(sorted(map(repr, named)))
        raise click.UsageError(f"{name!r} is ambiguous: {names}. Specify the group, as in sites.example.com.")
    known = {text for item in resources for text in (item.plural, item.singular, item.kind) if text}
    raise click.ClickException(f"The cluster has no resource {name!r}{did_you_mean(name, known)}")


def _describe(
    session: Session, resource: Resource, handlers: Sequence[ResourceHandler] | None
) -> InspectedKind:
    own = [session.settings.persistence.finalizer]
    for handler in handlers or ():
        if isinstance(handler, ReconcilingHandler) and handler.finalizer is not None:
            own.append(handler.finalizer)
    return InspectedKind(resource, list(dict.fromkeys(own)), handlers)


def list_pages(session: Session, kind: InspectedKind, namespaces: Collection[str]) -> Iterator[list[Body]]:
    """The objects in these namespaces (in all if there are none), page by page.

    The views of the objects are dropped when the next page is read: otherwise, many pages would be in memory
    until the garbage collector frees them.
    """
    resource = kind.resource
    page: list[Body] = []
    for scope in listed_scopes(resource, namespaces):
        for body in session.api.list(resource, scope, chunk=CHUNK):
            namespace = (body.get("metadata") or {}).get("namespace") or ""
            if not resource.namespaced or is_served(namespace, namespaces):
                page.append(body)
            if len(page) == CHUNK:
                yield page
                for known in page:
                    release_views(known)
                page = []
    if page:
        yield page


def listed_scopes(resource: Resource, namespaces: Collection[str]) -> list[str | None]:
    """The scopes of the requests for the objects in these namespaces: each one, if all are exact names."""
    if not resource.namespaced:
        return [None]
    is_exact = bool(namespaces) and all(is_exact_namespace(name) for name in namespaces)
    return list(namespaces) if is_exact else ["*"]


def inspect_page(
    session: Session, kind: InspectedKind, page: Sequence[Body], now: int
) -> list[dict[str, Any]]:
    """The states of the objects, as the core derives them. The time is in microseconds since the epoch."""
    persistence = serialization.serialize_settings(session.settings)["persistence"]
    is_custom = "Custom" in (
        persistence["progress_storage"]["type"],
        persistence["diffbase_storage"]["type"],
    )
    return bridge.inspect(
        [(to_text(body), _fetch(session, kind, body) if is_custom else None) for body in page],
        persistence=persistence,
        resource=serialize_resource(kind.resource),
        handlers=None if kind.handlers is None else list(_serialize(kind.handlers)),
        finalizers=list(kind.finalizers),
        now=now,
    )


def to_text(body: Mapping[str, Any]) -> str:
    """The object as JSON."""
    return json.dumps(dict(body), separators=(",", ":"))


def _serialize(handlers: Sequence[ResourceHandler]) -> Iterator[dict[str, Any]]:
    for handler in handlers:
        if isinstance(handler, (ChangingHandler, SpawningHandler, WatchingHandler, IndexingHandler)):
            # They are selected already; only Python knows the functions in selectors.
            yield {**serialization.serialize_handler(handler), "selector": None}


def _fetch(session: Session, kind: InspectedKind, body: Body) -> FetchedState:
    """The state in storages that users have written."""
    progress = session.settings.persistence.progress_storage
    handlers = kind.handlers or ()
    fields = [
        handler.field for handler in handlers if handler.field and not isinstance(handler, IndexingHandler)
    ]
    old, new = fetch_essences(body, fields, session.settings)
    ids = [handler.id for handler in handlers if isinstance(handler, ChangingHandler)]
    records = {id: progress.fetch(key=id, body=body) for id in ids}
    return old, new, {id: record for id, record in records.items() if record is not None}
