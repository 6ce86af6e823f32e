"""Calls of selectors and namespace patterns that only Python can evaluate, when the engine asks for it."""

from __future__ import annotations

from collections.abc import Sequence

from kopf._intents.handlers import ResourceHandler
from kopf._intents.selectors import NamespacePattern, is_served
from kopf._runtime.bridge import MatchNamespaces, MatchResources
from kopf._runtime.errors import ENDING_ERRORS, repr_of


def match_resources(host_task: MatchResources, *, handlers: Sequence[ResourceHandler]) -> None:
    """Evaluate the selectors of the handlers for each resource."""

    def matches(index: int) -> list[bool]:
        selector = handlers[index].selector
        selected = host_task.resources if selector is None else selector.select(host_task.resources)
        return [resource in selected for resource in host_task.resources]

    try:
        host_task.complete([matches(index) for index in host_task.handlers])
    except ENDING_ERRORS:
        raise
    except BaseException as e:
        host_task.fail(repr_of(e))


def match_namespaces(host_task: MatchNamespaces, *, patterns: Sequence[NamespacePattern]) -> None:
    """Match the patterns with each namespace."""
    host_task.complete([is_served(name, patterns) for name in host_task.names])
