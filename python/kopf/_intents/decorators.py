"""Conversion of decorator options to handlers, with the checks of the options."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from kopf._intents import compatibility
from kopf._intents.causes import ChangingCause
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
    handler_with,
)
from kopf._intents.registries import OperatorRegistry, add_handler, generate_id
from kopf._intents.selectors import selector_of
from kopf._objects.dicts import parse_field
from kopf._objects.reasons import Activity, Reason, WebhookType
from kopf._objects.suggestions import did_you_mean

Options = Mapping[str, Any]
Fn = Callable[..., Any]

_ACTIVITIES = {
    "startup": Activity.STARTUP,
    "cleanup": Activity.CLEANUP,
    "login": Activity.AUTHENTICATION,
    "probe": Activity.PROBE,
}
_REASONS = {"create": Reason.CREATE, "update": Reason.UPDATE, "delete": Reason.DELETE}
_RETRY_OPTIONS = ("param", "errors", "timeout", "retries", "backoff")
_FILTER_OPTIONS = ("labels", "annotations", "when", "value")


def reject_bare_decorator(decorator: str, options: Options) -> None:
    """Raise `TypeError` if the function after the decorator was taken as a selector of resources.

    It is so when the decorator is used without arguments: `@kopf.on.create`. Functions that select resources
    get one positional argument, handlers get keyword arguments.
    """
    fn = options["arg1"]
    others = [value for name, value in options.items() if name != "arg1"]
    is_alone = all(value is None or value is False for value in others)
    if compatibility.of_environment().accepts_bare_decorators or not is_alone or not _looks_like_handler(fn):
        return
    name = getattr(fn, "__name__", repr(fn))
    raise TypeError(
        f"@kopf.on.{decorator} needs arguments: @kopf.on.{decorator}('guests'). Without them, {name}() would "
        "be taken as a function that selects resources, and would never be called as a handler."
    )


def _looks_like_handler(fn: Fn) -> bool:
    if getattr(fn, "__name__", "<lambda>") == "<lambda>":
        return False
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return False
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return False  # it is a wrapper of anything
    positional = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    required = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    ]
    accepts_one_argument = (
        bool(positional) and len(required) <= 1 and all(parameter in positional for parameter in required)
    )
    if not accepts_one_argument:
        return True
    first = positional[0].name
    return first != "resource" and first in ChangingCause._arguments


def explain_call(fn: Fn, args: tuple[Any, ...], kwargs: Options, error: TypeError) -> TypeError:
    """The same error about the arguments of a decorator, with a hint if there is one."""
    name = fn.__name__
    option_names = [
        parameter.name
        for parameter in inspect.signature(fn).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    text = str(error)
    if len(args) == 1 and not kwargs and callable(args[0]):
        public = "kopf.subhandler" if name == "subhandler" else f"kopf.on.{name}"
        text = f"{text}. The decorator needs parentheses: @{public}()"
    for option in kwargs:
        if option not in option_names:
            text += did_you_mean(option, option_names)
            break
    return TypeError(text)


def declare(decorator: str, fn: Fn, options: Options, registry: OperatorRegistry) -> None:
    """Add a handler to the registry, as the decorator of this name does.

    Wrong options raise `TypeError` or `ValueError`, with a note on the function.
    """
    try:
        _declare(decorator, fn, options, registry)
    except (TypeError, ValueError) as e:
        if not compatibility.of_environment().keeps_errors_unchanged:
            e.add_note(f"In the declaration of @kopf.on.{decorator}(...) for {fn!r}.")
        raise


def _declare(decorator: str, fn: Fn, options: Options, registry: OperatorRegistry) -> None:
    if decorator in _ACTIVITIES:
        add_handler(registry, _make_activity_handler(_ACTIVITIES[decorator], fn, options))
    elif decorator in ("validate", "mutate"):
        add_handler(registry, _make_webhook_handler(decorator, fn, options))
    elif decorator == "index":
        common = _resource_kwargs(fn, options, field_in_id=False)
        add_handler(registry, IndexingHandler(**common, metadata_only=_metadata_only(options)))
    elif decorator == "reconcile":
        from kopf._intents import reconciling  # other operators do not load it

        reconciler = reconciling.make_handler(_resource_kwargs(fn, options, field_in_id=False), options)
        reconciling.check_ids(registry, reconciler)
        add_handler(registry, reconciler)
    elif decorator == "event":
        event = WatchingHandler(**_resource_kwargs(fn, options), metadata_only=_metadata_only(options))
        add_handler(registry, event)
    elif decorator == "daemon":
        names = ["initial_delay", "cancellation_backoff", "cancellation_timeout", "cancellation_polling"]
        specific = {name: options[name] for name in names}
        specific["metadata_only"] = _metadata_only(options)
        daemon = DaemonHandler(**_resource_kwargs(fn, options), requires_finalizer=True, **specific)
        add_handler(registry, daemon)
    elif decorator == "timer":
        specific = {name: options[name] for name in ["initial_delay", "sharp", "idle", "interval"]}
        specific["metadata_only"] = _metadata_only(options)
        timer = TimerHandler(**_resource_kwargs(fn, options), requires_finalizer=True, **specific)
        add_handler(registry, timer)
    else:
        add_handler(registry, _make_changing_handler(decorator, fn, options))


def _make_activity_handler(activity: Activity, fn: Fn, options: Options) -> ActivityHandler:
    retry_options = {name: options[name] for name in _RETRY_OPTIONS}
    return ActivityHandler(id=generate_id(fn, options["id"]), fn=fn, activity=activity, **retry_options)


def _make_webhook_handler(decorator: str, fn: Fn, options: Options) -> WebhookHandler:
    operations = options["operations"]
    if options["operation"] is not None:
        warnings.warn(
            "operation= is deprecated, use operations={...}.", category=DeprecationWarning, stacklevel=5
        )
        operations = frozenset(operations or ()) | {options["operation"]}
    if operations is not None and not operations:
        raise ValueError(f"Operations should be either None or non-empty. Got empty {operations}.")
    return WebhookHandler(
        **_resource_kwargs(fn, options),
        reason=WebhookType.VALIDATING if decorator == "validate" else WebhookType.MUTATING,
        operations=operations,
        subresource=options["subresource"],
        persistent=options["persistent"],
        side_effects=options["side_effects"],
        ignore_failures=options["ignore_failures"],
    )


def _make_changing_handler(decorator: str, fn: Fn, options: Options) -> ChangingHandler:
    return ChangingHandler(
        **_resource_kwargs(fn, options),
        reason=_REASONS.get(decorator),
        initial=True if decorator == "resume" else None,
        deleted=options.get("deleted"),
        requires_finalizer=not options["optional"] if decorator == "delete" else None,
        field_needs_change=decorator in ("update", "field"),
        old=options.get("old"),
        new=options.get("new"),
    )


def _resource_kwargs(fn: Fn, options: Options, *, field_in_id: bool = True) -> dict[str, Any]:
    common = _common_kwargs(fn, options)
    suffix = ".".join(common["field"] or ()) if field_in_id else None
    return {
        "id": generate_id(fn, options["id"], suffix=suffix),
        **common,
        "selector": selector_of(options),
    }


# Only the metadata is requested from the server then: the rest of the object is not there.
def _metadata_only(options: Options) -> bool:
    metadata_only = options.get("metadata_only", False)
    if not isinstance(metadata_only, bool):
        raise TypeError(f"metadata_only= must be either True or False. Got {metadata_only!r}.")
    field = parse_field(options.get("field"))
    if metadata_only and field and field[0] != "metadata":
        name = ".".join(field)
        raise ValueError(f"field={name!r} is not in the metadata: remove it, or remove metadata_only=True.")
    if metadata_only and options.get("idle") is not None:
        raise ValueError(
            "idle= counts from the last change of the object, which is not known from its metadata: "
            "remove it, or remove metadata_only=True."
        )
    return metadata_only


# What resource handlers and sub-handlers have in common. The order of checks is the order of arguments here.
def _common_kwargs(fn: Fn, options: Options) -> dict[str, Any]:
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
        **{name: options.get(name) for name in _RETRY_OPTIONS},
        **{name: options.get(name) for name in _FILTER_OPTIONS},
        "field": parse_field(options.get("field")) or None,
    }


def make_subhandler(fn: Fn, options: Options, parent: Handler) -> ChangingHandler:
    """Make a sub-handler; raise `TypeError` if the handler cannot have any, or not with these filters."""
    if not isinstance(parent, ChangingHandler):
        raise TypeError("Sub-handlers are only supported for resource-changing handlers.")
    # Without a reason: handlers of fields, sub-handlers, functions of `kopf.execute()`; and resume handlers.
    is_for_updates = parent.reason == Reason.UPDATE or (parent.reason is None and not parent.initial)
    if not is_for_updates and (options.get("old") is not None or options.get("new") is not None):
        raise TypeError("Filters old=/new= can only be used in update handlers.")
    common = _common_kwargs(fn, options)
    return handler_with(
        ChangingHandler,
        id=generate_id(fn, options["id"], prefix=parent.id),
        **common,
        field_needs_change=parent.field_needs_change,
        old=options.get("old"),
        new=options.get("new"),
    )
