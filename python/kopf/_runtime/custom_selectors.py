"""Calls of selectors and namespace patterns that only Python can evaluate, when the engine asks for it."""

from __future__ import annotations

from collections.abc import Sequence

from kopf._intents.handlers import ResourceHandler
from kopf._intents.selectors import NamespacePattern, match_namespace
from kopf._objects.resources import Resource
from kopf._runtime.bridge import MatchNamespaces, MatchResources
from kopf._runtime.errors import ENDING_ERRORS, repr_of


def match_resources(host_task: MatchResources, *, handlers: Sequence[ResourceHandler]) -> None:
    """Evaluate the selectors of the handlers for each resource."""

    def selects(index: int, resource: Resource) -> bool:
        selector = handlers[index].selector
        return selector is None or selector.check(resource)

    try:
        host_task.complete(
            [[selects(index, resource) for resource in host_task.resources] for index in host_task.handlers]
        )
    except ENDING_ERRORS:
        raise
    except BaseException as e:
        host_task.fail(repr_of(e))


def match_namespaces(host_task: MatchNamespaces, *, patterns: Sequence[NamespacePattern]) -> None:
    """Match the patterns with each namespace."""
    host_task.complete(
        [any(match_namespace(name, pattern) for pattern in patterns) for name in host_task.names]
    )
