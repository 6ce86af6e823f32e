"""Summary of what an operator serves: its handlers, their kinds, and the namespaces."""

from __future__ import annotations

from collections.abc import Collection

from kopf._intents.handlers import ResourceHandler
from kopf._intents.selectors import NamespacePattern, Selector, is_exact_namespace

SHOWN = 5


def describe_handlers(handlers: Collection[ResourceHandler]) -> str:
    """The number of handlers, and the kinds: `3 handlers of 2 kinds (guests, rooms)`."""
    selectors = [handler.selector for handler in handlers if handler.selector is not None]
    names = list(dict.fromkeys(_name(selector) for selector in selectors if selector.is_specific))
    text = count_noun(len(handlers), "handler")
    if not handlers:
        return text
    if any(not selector.is_specific for selector in selectors):
        return f"{text} of kinds that match selectors" + (f" and of {_list(names)}" if names else "")
    return f"{text} of {count_noun(len(names), 'kind')} ({_list(names)})"


def describe_namespaces(namespaces: Collection[NamespacePattern]) -> str:
    """The namespaces of the operator; all of them if there are no patterns."""
    if not namespaces:
        return "all namespaces"
    is_one = len(namespaces) == 1 and all(map(is_exact_namespace, namespaces))
    patterns = [pattern if isinstance(pattern, str) else pattern.pattern for pattern in namespaces]
    return f"namespace{'' if is_one else 's'} {_list(patterns)}"


def count_noun(count: int, noun: str) -> str:
    """The count with the noun, such as `1 object` or `2 objects`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _list(names: Collection[str]) -> str:
    shown = list(names)[:SHOWN]
    return ", ".join(shown) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _name(selector: Selector) -> str:
    names = (selector.any_name, selector.plural, selector.singular, selector.kind, selector.shortcut)
    name = next(str(name) for name in names if name)
    return ".".join(part for part in (name, selector.version, selector.group) if part)
