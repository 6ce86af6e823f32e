"""Command `kopf check`: mistakes in the declarations of an operator, and missing resources and permissions.

The startup, login and cleanup handlers of the operator are called, so that its settings and credentials are
known. Other handlers are not called. Kopf only reads the cluster. With `--offline`, no handler is called.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from kopf._cli.access import missing_permissions
from kopf._cli.cluster_session import NOT_COORDINATED, Coordination
from kopf._cli.error_report import explain
from kopf._cli.inspection import run_inspection
from kopf._cli.namespace_check import describe_unmatched
from kopf._cli.output import Output, document_output, print_text
from kopf._cli.permissions import Permission, Resolved, all_permissions, resolve
from kopf._intents.registries import (
    OperatorRegistry,
    activity_handlers,
    resource_handlers,
)
from kopf._intents.settings import OperatorSettings
from kopf._objects.apierrors import ApiError
from kopf._objects.credentials import LoginError
from kopf._objects.reasons import Activity
from kopf._objects.resources import Resource
from kopf._objects.suggestions import did_you_mean
from kopf._runtime import bridge, handler_checks, loaders
from kopf._runtime.activities import ActivityError
from kopf._runtime.banner import count_noun, describe_handlers
from kopf._runtime.client.sync_api import SyncApi
from kopf._runtime.default_registry import get_default_registry
from kopf._runtime.handler_api import OperatorApi


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
    coordination: Coordination = NOT_COORDINATED,
) -> int:
    """Print the problems of the operator in these files and modules; the exit code: 1 if there are any.

    Errors of loading are raised.
    """
    found: list[Problem] = []
    # The output of the author's code must not be in the report.
    with document_output(output) as print_document:
        loaders.preload(paths=paths, modules=modules)
        registry = get_default_registry()
        omission = "--offline is set." if offline else _find_omission(registry)
        if omission is None:
            found = _check_cluster(registry, namespaces, coordination)
    # Not earlier: startup handlers may declare handlers.
    declared = [Problem("declaration", text) for text in check_declarations(registry, [*paths, *modules])]
    problems = list(dict.fromkeys([*declared, *found]))  # a function can have several decorators
    summary = describe_handlers(resource_handlers(registry))
    if output == "json":
        report = {"operator": summary, "skipped": omission, "problems": [item.to_json() for item in problems]}
        print_document(report)
        return 1 if problems else 0
    for problem in problems:
        print_text(f"- {problem.text}", sys.stdout)
    if omission is not None:
        print_text(f"The cluster is not checked: {omission}", sys.stdout)
    count = count_noun(len(problems), "problem") if problems else "no problems"
    print_text(f"{summary}: {count}.", sys.stdout)
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


def _check_cluster(
    registry: OperatorRegistry, namespaces: Collection[str], coordination: Coordination
) -> list[Problem]:
    """Check the cluster between the startup and the cleanup of the operator."""
    settings = OperatorSettings()
    coordination.apply(settings)
    problems: list[Problem] = []

    async def inspect(provider: OperatorApi) -> None:
        try:
            api = await provider.provide_blocking()
            # Of the operator's settings, the startup handlers have changed some by now.
            found = await asyncio.to_thread(_inspect, api, registry, namespaces, settings)
            problems.extend(found)
        except (ActivityError, LoginError) as error:
            problems.append(
                Problem("credentials", f"There are no valid credentials: {_explain_login(error)}")
            )
        except ApiError as error:
            problems.append(Problem("connection", f"The cluster cannot be checked: {error}"))

    try:
        run_inspection(inspect, registry=registry, settings=settings, namespaces=namespaces)
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
    problems = [Problem("resource", text) for text in check_selectors(resolved, resources)]
    problems += [Problem("namespace", text) for text in describe_unmatched(api, namespaces)]
    permissions = all_permissions(api, registry, resolved, resources, namespaces, settings)
    problems += [
        Problem("permission", item.describe(), item) for item in missing_permissions(api, permissions)
    ]
    return problems


def check_selectors(resolved: Resolved, resources: Collection[Resource]) -> Iterator[str]:
    """Find the names of resources that the cluster does not have, or has several times."""
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
