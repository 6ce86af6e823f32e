"""From the options of a decorator to a handler in a registry. It owns the checks of declarations and the
defaults
of each decorator; it must not know which registry is the default one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from kopf._intents.filters import verify_filters
from kopf._intents.handlers import (
    ActivityHandler,
    ChangingHandler,
    DaemonHandler,
    Handler,
    IndexingHandler,
    TimerHandler,
    WatchingHandler,
    WebhookHandler,
)
from kopf._intents.registries import OperatorRegistry, generate_id
from kopf._intents.selectors import Selector
from kopf._intents.settings import IS_COMPATIBLE
from kopf._objects.dicts import parse_field
from kopf._objects.reasons import Activity, Reason, WebhookType

Options = Mapping[str, Any]
Fn = Callable[..., Any]

_ACTIVITIES = {
    "startup": Activity.STARTUP,
    "cleanup": Activity.CLEANUP,
    "login": Activity.AUTHENTICATION,
    "probe": Activity.PROBE,
}
_REASONS = {"create": Reason.CREATE, "update": Reason.UPDATE, "delete": Reason.DELETE}
_BEHAVIOUR = ("param", "errors", "timeout", "retries", "backoff")
_SELECTION = ("group", "version", "kind", "plural", "singular", "shortcut", "category")
_OBJECT = ("labels", "annotations", "when", "value")


def declare(decorator: str, fn: Fn, options: Options, registry: OperatorRegistry) -> None:
    """Add a handler to the registry, as the decorator of this name says.

    What makes no sense raises `TypeError` or `ValueError`, with a note on the function.
    """
    try:
        _declare(decorator, fn, options, registry)
    except (TypeError, ValueError) as e:
        if not IS_COMPATIBLE:  # the original says nothing of it
            e.add_note(f"In the declaration of @kopf.on.{decorator}(...) for {fn!r}.")
        raise


def _declare(decorator: str, fn: Fn, options: Options, registry: OperatorRegistry) -> None:
    if decorator in _ACTIVITIES:
        registry._activities.append(_activity(_ACTIVITIES[decorator], fn, options))
    elif decorator in ("validate", "mutate"):
        registry._webhooks.append(_webhook(decorator, fn, options))
    elif decorator == "index":
        common = _resource(fn, options, suffixed=False)
        registry._indexing.append(IndexingHandler(**common))
    elif decorator == "event":
        registry._watching.append(WatchingHandler(**_resource(fn, options)))
    elif decorator == "daemon":
        names = ["initial_delay", "cancellation_backoff", "cancellation_timeout", "cancellation_polling"]
        specific = {name: options[name] for name in names}
        daemon = DaemonHandler(**_resource(fn, options), requires_finalizer=True, **specific)
        registry._spawning.append(daemon)
    elif decorator == "timer":
        specific = {name: options[name] for name in ["initial_delay", "sharp", "idle", "interval"]}
        timer = TimerHandler(**_resource(fn, options), requires_finalizer=True, **specific)
        registry._spawning.append(timer)
    else:
        registry._changing.append(_changing(decorator, fn, options))


def _activity(activity: Activity, fn: Fn, options: Options) -> ActivityHandler:
    behaviour = {name: options[name] for name in _BEHAVIOUR}
    return ActivityHandler(id=generate_id(fn, options["id"]), fn=fn, activity=activity, **behaviour)


def _webhook(decorator: str, fn: Fn, options: Options) -> WebhookHandler:
    operations = options["operations"]
    if options["operation"] is not None:
        warnings.warn(
            "operation= is deprecated, use operations={...}.", category=DeprecationWarning, stacklevel=5
        )
        operations = frozenset(operations or ()) | {options["operation"]}
    if operations is not None and not operations:
        raise ValueError(f"Operations should be either None or non-empty. Got empty {operations}.")
    return WebhookHandler(
        **_resource(fn, options),
        reason=WebhookType.VALIDATING if decorator == "validate" else WebhookType.MUTATING,
        operations=operations,
        subresource=options["subresource"],
        persistent=options["persistent"],
        side_effects=options["side_effects"],
        ignore_failures=options["ignore_failures"],
    )


def _changing(decorator: str, fn: Fn, options: Options) -> ChangingHandler:
    return ChangingHandler(
        **_resource(fn, options),
        reason=_REASONS.get(decorator),
        initial=True if decorator == "resume" else None,
        deleted=options.get("deleted"),
        requires_finalizer=not options["optional"] if decorator == "delete" else None,
        field_needs_change=decorator in ("update", "field"),
        old=options.get("old"),
        new=options.get("new"),
    )


def _resource(fn: Fn, options: Options, *, suffixed: bool = True) -> dict[str, Any]:
    common = _filtered(fn, options)
    suffix = ".".join(common["field"] or ()) if suffixed else None
    return {
        "id": generate_id(fn, options["id"], suffix=suffix),
        **common,
        "selector": Selector(
            options["arg1"],
            options["arg2"],
            options["arg3"],
            **{name: options[name] for name in _SELECTION},
        ),
    }


# What resource handlers and sub-handlers have in common. The order of checks is the order of arguments here.
def _filtered(fn: Fn, options: Options) -> dict[str, Any]:
    verify_filters(
        labels=options["labels"],
        annotations=options["annotations"],
        field=options.get("field"),
        value=options.get("value"),
        old=options.get("old"),
        new=options.get("new"),
    )
    return {
        "fn": fn,
        **{name: options.get(name) for name in _BEHAVIOUR},
        **{name: options.get(name) for name in _OBJECT},
        "field": parse_field(options.get("field")) or None,
    }


def make_subhandler(fn: Fn, options: Options, parent: Handler) -> ChangingHandler:
    """Make a sub-handler of the handler; raise `TypeError` if it cannot have any, or not with
    these filters.
    """
    if not isinstance(parent, ChangingHandler):
        raise TypeError("Sub-handlers are only supported for resource-changing handlers.")
    updating = parent.reason == Reason.UPDATE or parent.field_needs_change
    if not updating and (options.get("old") is not None or options.get("new") is not None):
        raise TypeError("Filters old=/new= can only be used in update handlers.")
    common = _filtered(fn, options)
    return ChangingHandler(
        id=generate_id(fn, options["id"], prefix=parent.id),
        **common,
        selector=None,
        reason=None,
        initial=None,
        deleted=None,
        requires_finalizer=None,
        field_needs_change=parent.field_needs_change,
        old=options.get("old"),
        new=options.get("new"),
    )
