"""Command `kopf explain`: why the handlers of an object are called or not called.

The engine decides, as for a running operator that receives an event of the object. The cluster is only read.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import click

from kopf._cli.cluster_session import NOT_COORDINATED, Coordination, Session, in_session
from kopf._cli.filter_calls import FilterCalls
from kopf._cli.inspected_kinds import find_resource, identity, to_text
from kopf._cli.kubeconfigs import default_namespace
from kopf._cli.output import print_text
from kopf._cli.tables import WIDTH, format_table
from kopf._cli.verdicts import Verdict, explain_verdict, format_age_of, with_fence, with_subhandlers
from kopf._intents import lifecycles, serialization
from kopf._intents.handlers import (
    ChangingHandler,
    DaemonHandler,
    IndexingHandler,
    ReconcilingHandler,
    ResourceHandler,
    TimerHandler,
    WebhookHandler,
)
from kopf._intents.registries import resource_handlers
from kopf._intents.selectors import Selector
from kopf._objects.apierrors import NotFound
from kopf._objects.bodies import Body
from kopf._objects.resources import Resource, serialize_resource
from kopf._objects.typedefs import RawEventType
from kopf._runtime import bridge
from kopf._runtime.loggers import full_name
from kopf._runtime.optional_parts import serialize_declared

Event = Literal["listed", "added", "modified", "deleted"]
Output = Literal["table", "wide", "json"]

TYPES: dict[Event, RawEventType] = {
    "listed": None,
    "added": "ADDED",
    "modified": "MODIFIED",
    "deleted": "DELETED",
}

KINDS = ("change", "event", "index", "daemon", "timer", "reconciler")
"""The kinds of handlers, in the order of the table."""

REASONS = {
    "create": "it was never handled",
    "update": "it differs from the last handled state",
    "delete": "its deletion is requested",
    "resume": "the operator has started",
    "noop": "it equals the last handled state",
    "free": "its deletion is requested, and the finalizer of the operator does not block it",
    "gone": "it is deleted",
    None: "no handler for changes can match its labels and annotations",
}


@dataclass(frozen=True)
class Options:
    """The options of the command."""

    kind: str
    name: str
    namespace: str | None
    event: Event
    changes: pathlib.Path | None
    calls_filters: bool
    output: Output
    coordination: Coordination = NOT_COORDINATED


@dataclass(frozen=True)
class Explanation:
    """The verdicts about all handlers, with the object that they are about."""

    resource: Resource
    body: Body
    event: Event
    now: int
    decision: Mapping[str, Any]
    """The decision as the engine describes it."""
    verdicts: Sequence[Verdict]


def run(paths: Sequence[str], modules: Sequence[str], options: Options) -> int:
    """Print the explanation; the exit code."""
    changes = _read_changes(options.changes) if options.changes is not None else {}
    found = in_session(
        paths, modules, (), lambda session: explain(session, options, changes), options.coordination
    )
    if found is None:
        raise click.Abort
    text = _format_json(found) if options.output == "json" else "\n".join(_format_lines(found, options))
    print_text(text, sys.stdout)
    return 0


def _read_changes(path: pathlib.Path) -> Mapping[str, Any]:
    import yaml

    from kopf._testing.manifests import ManifestLoader

    try:
        changes = yaml.load(path.read_text(encoding="utf-8"), ManifestLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise click.UsageError(f"The file {path} cannot be read: {error}") from None
    if not isinstance(changes, Mapping):
        raise click.UsageError(f"The file {path} must have one object, in YAML or JSON.")
    return changes


def explain(session: Session, options: Options, changes: Mapping[str, Any]) -> Explanation:
    """Explain the decision about the object."""
    resource = find_resource(options.kind, session.resources)
    body = _read(session, resource, options)
    if changes:
        body = Body(_merge(dict(body), changes))
    served, others = _select(session, resource)
    lifecycle = lifecycles.get_default_lifecycle()
    names = [fn.__name__ for fn in lifecycles.BUILTIN_LIFECYCLES if fn is lifecycle]
    calls = FilterCalls(
        served,
        registry=session.registry,
        resource=resource,
        settings=session.settings,
        lifecycle=lifecycle,
        type=TYPES[options.event],
        calls_filters=options.calls_filters,
    )
    now = session.now()
    decision = bridge.explain(
        to_text(body),
        settings=serialization.serialize_settings(session.settings),
        lifecycle=names[0] if names else "custom",
        resource=serialize_resource(resource),
        handlers=[
            # They are selected already; only Python knows the functions in selectors.
            {**serialize_declared(handler, session.settings), "selector": None}
            for handler in served
        ],
        event=options.event,
        now=now,
        host=calls,
    )
    verdicts = [
        _to_verdict(served[found["handler"]], found, decision["reason"], now)
        for found in decision["handlers"]
    ]
    verdicts.sort(key=lambda verdict: KINDS.index(verdict.kind))
    verdicts = with_fence(session, verdicts, now / 1e6)
    verdicts = list(with_subhandlers(session, body, verdicts, now))
    verdicts += [Verdict(handler.id, _kind(handler), "no", "selector", why) for handler, why in others]
    return Explanation(resource, body, options.event, now, decision, verdicts)


def _read(session: Session, resource: Resource, options: Options) -> Body:
    if not resource.namespaced and options.namespace is not None:
        raise click.UsageError(f"{resource.plural} are cluster-scoped: -n cannot be used.")
    namespace = (options.namespace or default_namespace() or "default") if resource.namespaced else None
    try:
        return session.api.get(resource, options.name, namespace)
    except NotFound:
        place = f" in the namespace {namespace!r}" if namespace is not None else ""
        hint = " Use -n for other namespaces." if resource.namespaced and options.namespace is None else ""
        raise click.ClickException(f"There is no {options.kind} {options.name!r}{place}.{hint}") from None


def _merge(target: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The object with the changes, by the rules of a JSON merge patch."""
    merged = dict(target)
    for key, value in changes.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            known = merged.get(key)
            merged[key] = _merge(known if isinstance(known, Mapping) else {}, value)
        else:
            merged[key] = value
    return merged


def _select(
    session: Session, resource: Resource
) -> tuple[list[ResourceHandler], list[tuple[ResourceHandler, str]]]:
    """The handlers of the resource, and the others with the reasons; without admission handlers."""
    served: list[ResourceHandler] = []
    others: list[tuple[ResourceHandler, str]] = []
    for handler in resource_handlers(session.registry):
        if isinstance(handler, WebhookHandler) or handler.selector is None:
            continue
        selected = list(handler.selector.select(session.resources))
        if resource not in selected:
            others.append((handler, f"handles {_describe_selector(handler.selector)}"))
        elif handler.selector.is_ambiguous(selected):
            names = ", ".join(sorted(map(repr, selected)))
            others.append((handler, f"its kind is ambiguous: {names}"))
        else:
            served.append(handler)
    return served, others


def _describe_selector(selector: Selector) -> str:
    parts = {field.name: getattr(selector, field.name) for field in dataclasses.fields(selector)}
    given = {name: value for name, value in parts.items() if value is not None and name != "fn"}
    name = given.pop("any_name", None)
    texts = [f"{name!r}"] if isinstance(name, str) else ["any resource"] if name is not None else []
    texts += [f"{name}={value!r}" for name, value in given.items()]
    return ", ".join(texts) if texts else "other resources, as its function selects"


def _kind(handler: ResourceHandler) -> str:
    kinds = {
        ChangingHandler: "change",
        DaemonHandler: "daemon",
        TimerHandler: "timer",
        IndexingHandler: "index",
        ReconcilingHandler: "reconciler",
    }
    return next((name for cls, name in kinds.items() if isinstance(handler, cls)), "event")


def _to_verdict(handler: ResourceHandler, found: Mapping[str, Any], reason: str | None, now: int) -> Verdict:
    names = ("verdict", "code", "attempts", "next", "stopped", "message")
    fields = {name: found[name] for name in names}
    why = explain_verdict(found, now, handler=handler, reason=reason)
    return Verdict(id=handler.id, kind=_kind(handler), why=why, **fields)


def _format_lines(found: Explanation, options: Options) -> Iterator[str]:
    metadata, resource, decision = found.body.metadata, found.resource, found.decision
    name = full_name(metadata.namespace, metadata.name)
    version = found.body.get("metadata", {}).get("resourceVersion")
    yield f"{name}  {_resource_name(resource)}  version {version}"
    yield f"reason    {decision['reason'] or 'none'}: {REASONS[decision['reason']]}"
    for changed in decision["changed"]:
        yield f"          {_describe_change(changed, found.now)}"
    rows = [
        (
            verdict.id if verdict.kind == "change" else f"{verdict.id} ({verdict.kind})",
            verdict.verdict,
            verdict.why,
        )
        for verdict in found.verdicts
    ]
    finalizer = decision["finalizer"]
    blocking = finalizer["handlers"]
    verb = "blocks" if len(blocking) == 1 else "block"
    why = f"{_join(blocking)} {verb} deletion" if blocking else "no handler blocks deletion"
    rows.append(("finalizer", finalizer["verdict"], why))
    width = None if options.output == "wide" else WIDTH
    yield from format_table(("HANDLER", "VERDICT", "WHY"), rows, width=width)
    if decision["error"]:
        yield f"The operator would log this error, and retry the object later: {decision['error']}"


def _join(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _resource_name(resource: Resource) -> str:
    return ".".join(filter(None, (resource.plural, resource.version, resource.group)))


def _describe_change(changed: Mapping[str, Any], now: int) -> str:
    old, new = (_shorten(changed[side]) for side in ("old", "new"))
    field = ".".join(changed["field"])
    texts = {"add": f"{field}: added {new}", "remove": f"{field}: removed {old}"}
    text = texts.get(changed["operation"], f"{field}: {old} -> {new}")
    if not changed["manager"]:
        return text
    age = format_age_of(changed["time"], now)
    return f"{text}   by {changed['manager']}" + (f", {age} ago" if age else "")


def _shorten(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _format_json(found: Explanation) -> str:
    metadata, resource, decision = found.body.metadata, found.resource, found.decision
    document = {
        "version": 1,
        "object": {
            **identity(resource, metadata.name, metadata.namespace),
            "resourceVersion": found.body.get("metadata", {}).get("resourceVersion"),
        },
        "event": found.event,
        "reason": decision["reason"],
        "changed": decision["changed"],
        "handlers": [dataclasses.asdict(verdict) for verdict in found.verdicts],
        "finalizer": decision["finalizer"],
        "error": decision["error"],
    }
    return json.dumps(document, indent=2)
