"""Warning at the start of `kopf run` about namespace patterns that no namespace matches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator

from kopf._intents.registries import OperatorRegistry, activity_handlers
from kopf._intents.selectors import is_exact_namespace, match_namespace
from kopf._objects.apierrors import ApiError, Forbidden, NotFound
from kopf._objects.credentials import LoginError
from kopf._objects.reasons import Activity
from kopf._objects.suggestions import did_you_mean
from kopf._runtime import bridge
from kopf._runtime.client.connecting import connect_sync
from kopf._runtime.client.sync_api import SyncApi

logger = logging.getLogger("kopf._core.reactor.running")


def describe_unmatched(api: SyncApi, patterns: Collection[str]) -> Iterator[str]:
    """A sentence for each pattern without a namespace.

    Without the permission to list namespaces, only exact names are checked, as far as they can be read.
    Without any permission, nothing is known, and nothing is returned.
    """
    try:
        names = {body["metadata"]["name"] for body in api.list("namespaces", metadata_only=True)}
    except Forbidden:
        missing = [name for name in patterns if is_exact_namespace(name) and _is_missing(api, name)]
        yield from (f"No namespace matches {name!r} yet." for name in missing)
        return
    for pattern in patterns:
        if not any(match_namespace(name, pattern) for name in names):
            hint = did_you_mean(pattern, names) if is_exact_namespace(pattern) else "."
            yield f"No namespace matches {pattern!r} yet{hint}"


def _is_missing(api: SyncApi, name: str) -> bool:
    try:
        api.get("namespaces", name, metadata_only=True)
    except NotFound:
        return True
    except Forbidden:
        return False
    return False


def warn_in_background(registry: OperatorRegistry, patterns: Collection[str]) -> threading.Thread | None:
    """Check the patterns in a thread, for which the operator does not wait.

    Nothing is checked if the operator has login handlers of its author, or if its kubeconfig has an exec
    plugin: to call them twice can have side effects. If the cluster cannot be reached, nothing is logged
    here: the operator reports that itself.
    """
    logins = activity_handlers(registry).get_handlers(Activity.AUTHENTICATION)
    if not patterns or not all(handler._fallback for handler in logins):
        return None
    thread = threading.Thread(target=_warn, args=(patterns,), name="kopf-namespace-check", daemon=True)
    thread.start()
    return thread


def _warn(patterns: Collection[str]) -> None:
    try:
        if bridge.has_kubeconfig() and bridge.has_exec_plugin():
            return
        with connect_sync() as api:
            for text in describe_unmatched(api.using(retries=False), patterns):
                logger.warning(text)
    except (ApiError, LoginError, OSError, ValueError) as error:
        logger.debug(f"The namespaces are not checked: {error!r}")
