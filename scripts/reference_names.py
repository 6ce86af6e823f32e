"""The reference pages of the decorators and of all public names, made of signatures and docstrings."""

import inspect
import re
from typing import Any

API = """\
# Public names

All names of `kopf`, `kopf.client`, `kopf.lifecycles` and `kopf.testing`, with their docstrings. Names with a
leading underscore are private: they can change at any time. [Decorators](decorators.md),
[settings](../settings.md)
and the [arguments of handlers](../arguments.md) have pages with all options.
"""

DECORATORS = """\
# Decorators

Each decorator registers the function, and returns it unchanged. Times are in seconds. Wrong options raise
`TypeError` or `ValueError` at the declaration. [Handlers](../handlers.md) describes when Kopf calls them,
[filters](../filters.md) describes the filters.
"""

# Each option once; a test checks that every option of a decorator is here.
OPTIONS = {
    "arg1": "up to three positional arguments select the resource: a group, a version, a name",
    "arg2": "the second positional argument",
    "arg3": "the third positional argument",
    "fn": "the function to declare",
    "group": "the API group of the resource",
    "version": "the API version; by default, the preferred one of the group",
    "kind": "the kind, such as `Pod`",
    "plural": "the plural name, such as `pods`",
    "singular": "the singular name, such as `pod`",
    "shortcut": "a short name, such as `po`",
    "category": "all resources of this category, such as `all`",
    "id": "the handler id, for logs, progress and results; by default the name of the function",
    "param": "any value, passed to the handler as `param`",
    "errors": "how to treat unexpected exceptions: `kopf.ErrorsMode`",
    "timeout": "the handler fails permanently after this time since its first attempt",
    "retries": "the maximum number of attempts",
    "backoff": "the delay of the next attempt after an unexpected exception",
    "labels": "labels that the object must have: values, callables, `kopf.PRESENT`, `kopf.ABSENT`",
    "annotations": "annotations that the object must have, in the same form",
    "when": "a callable with the keyword arguments of the handler: whether to call the handler",
    "field": "a field, such as `spec.replicas` or a tuple of keys: the handler is limited to it",
    "value": "the value of the field; in change handlers, the new one or the old one",
    "old": "the value of the field before the change",
    "new": "the value of the field after the change",
    "deleted": "also call the handler for objects that are marked for deletion",
    "optional": "add no finalizer: Kopf calls the handler only if something else blocks the deletion",
    "registry": "the registry of the handler, by default the default one",
    "initial_delay": "the time before the first call; a number or a callable",
    "interval": "the time between two calls",
    "sharp": "the interval is between the starts of two calls, not from the end to the start",
    "idle": "call the timer only if the object has not changed for this time",
    "cancellation_backoff": "when the daemon must stop: the time after which its task is cancelled",
    "cancellation_timeout": "the time after the cancellation for which Kopf waits for the daemon",
    "cancellation_polling": "how often Kopf checks and logs whether the daemon has stopped",
    "metadata_only": "the handler needs only the metadata of objects",
    "operations": "the operations to review, such as `CREATE`; by default all",
    "operation": "one operation; deprecated, use `operations`",
    "subresource": "the subresource to review, such as `status`; `*` for all; by default only the object",
    "persistent": "keep the webhook in the configuration when the operator exits",
    "side_effects": "the handler has side effects, except for dry runs",
    "owns": "the kinds of owned objects: names, or `kopf.owned()`",
    "watches": "the kinds of other objects that affect the object: `kopf.watch()`",
    "changed": "what counts as a change of the object: words, paths, functions; by default `essence`",
    "initial": "which objects of the first list are reconciled: all, none (`False`), or `unobserved` ones",
    "deletion": "also call the function for objects that are marked for deletion, and hold these",
    "finalizer": "the name of a separate finalizer; by default, that of the operator",
    "debounce": "the time in which changes are merged into one call",
    "debounce_limit": "the longest time from the first change to the call; by default, ten times `debounce`",
    "min_interval": "the shortest time between the starts of two calls",
    "resync": "the time after a success after which the function is called again",
    "concurrency": "how many objects are reconciled at the same time",
    "reconcile_timeout": "the timeout of one call",
    "condition": "the type of a status condition that shows the result of the last call",
    "observe": "set `status.observedGeneration` after each call that has returned",
    "ignore_failures": "if the API server cannot reach the operator, it accepts the object",
}


def cleaned(text: str | None) -> str:
    """A docstring as Markdown: without the indentation."""
    return inspect.cleandoc(text or "").strip()


def decorators() -> dict[str, Any]:
    """All functions of `kopf.on` that declare handlers, in their order."""
    import kopf.on

    return {
        name: value
        for name, value in vars(kopf.on).items()
        if not name.startswith("_") and inspect.isfunction(value) and value.__module__ == "kopf.on"
    }


def options_of(function: Any) -> dict[str, inspect.Parameter]:
    """The parameters of a decorator."""
    return dict(inspect.signature(function).parameters)


def default_of(parameter: inspect.Parameter) -> str:
    """What follows the description: most options are optional, and have no value by default."""
    if parameter.default is parameter.empty:
        return "; required"
    return "" if parameter.default is None else f"; by default `{parameter.default!r}`"


def decorators_page() -> str:
    """One table of all options per decorator."""
    import kopf

    page = [DECORATORS]
    for name, function in decorators().items():
        spelt = f"@kopf.{name}" if getattr(kopf, name, None) is function else f"@kopf.on.{name}"
        rows = ["| option | description |", "|---|---|"]
        for option, parameter in options_of(function).items():
            text = OPTIONS.get(option, "") + default_of(parameter)
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            rows.append(f"| `{option}` | {text} |")
        page.append(f"## {spelt}\n\n{cleaned(function.__doc__)}\n\n" + "\n".join(rows) + "\n")
    return "\n".join(page)


def public_names() -> dict[str, Any]:
    """Every public name with its object, but for modules and decorators."""
    import kopf
    import kopf.client
    import kopf.testing

    names = {f"kopf.{name}": getattr(kopf, name) for name in kopf.__all__}
    # Not imported by an asterisk.
    names |= {f"kopf.{name}": getattr(kopf, name) for name in kopf._ADDED if name != "client"}
    names |= {
        f"kopf.client.{name}": getattr(kopf.client, name)
        for name in kopf.client.__all__
        if getattr(kopf.client, name) not in names.values()
    }
    names |= {f"kopf.testing.{name}": getattr(kopf.testing, name) for name in kopf.testing.__all__}
    names |= {
        f"kopf.lifecycles.{name}": getattr(kopf.lifecycles, name)
        for name in ("all_at_once", "asap", "one_by_one", "randomized", "shuffled")
    }
    listed = list(decorators().values())
    return {
        name: value for name, value in names.items() if not inspect.ismodule(value) and value not in listed
    }


def methods_of(kind: type) -> list[str]:
    """The rows of the public methods and properties that a class has."""
    rows = []
    for name in dir(kind):
        found = inspect.getattr_static(kind, name)
        is_ours = any(name in vars(base) and base.__module__.startswith("kopf") for base in kind.__mro__)
        if name.startswith("_") or not is_ours:
            continue
        doc = " ".join(cleaned(getattr(found, "__doc__", None)).split("\n\n")[0].split())
        if isinstance(found, property):
            rows.append(f"| `{name}` | {doc} |")
        elif inspect.isroutine(found):
            rows.append(f"| `{name}{signature_of(getattr(kind, name))}` | {doc} |")
    return [row.replace("\n", " ") for row in rows]


def signature_of(value: Any) -> str:
    """The parameters with their defaults, without types."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "()"
    parameters = [
        parameter.replace(annotation=parameter.empty)
        for name, parameter in signature.parameters.items()
        if name not in ("self", "cls")
    ]
    text = str(inspect.Signature(parameters))
    return re.sub(r" at 0x[0-9a-f]+", "", text).replace("|", "\\|")


def section_of(name: str, value: Any) -> str:
    """The section of one name."""
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        spelt = (
            str(getattr(value, "__supertype__", value)).replace("typing.", "").replace("collections.abc.", "")
        )
        shown = re.sub(r"<?\bkopf\._[\w.]+\.(\w+)", r"\1", re.sub(r" object at 0x[0-9a-f]+>", "", spelt))
        return f"### {name}\n\n{NAMED.get(name, 'A type alias:')} `{shown}`.\n"
    head = "" if inspect.isclass(value) and issubclass(value, (dict, str, int)) else signature_of(value)
    lines = [f"### {name}", "", f"`{name.rpartition('.')[2]}{head}`", "", cleaned(value.__doc__), ""]
    if inspect.isclass(value):
        rows = methods_of(value)
        if rows:
            lines += ["| member | description |", "|---|---|", *rows, ""]
    return "\n".join(lines)


# Constants have no docstrings.
NAMED = {
    "kopf.PRESENT": "In filters: the label, annotation or field exists, with any value. It is",
    "kopf.ABSENT": "In filters: the label, annotation or field does not exist. It is",
    "kopf.EVERYTHING": "In decorators: all resources of the cluster. It is",
}


def api_page() -> str:
    """All public names, in groups by their kind."""
    names = public_names()
    groups: dict[str, list[str]] = {
        "Functions": [],
        "Exceptions": [],
        "Classes": [],
        "Types and constants": [],
    }
    for name, value in sorted(names.items(), key=lambda pair: pair[0].lower()):
        if inspect.isclass(value):
            group = "Exceptions" if issubclass(value, BaseException) else "Classes"
        else:
            group = "Functions" if inspect.isroutine(value) else "Types and constants"
        groups[group].append(section_of(name, value))
    return "\n".join([API, *(f"## {group}\n\n" + "\n".join(found) for group, found in groups.items())])
