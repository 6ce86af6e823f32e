"""Check of namespace patterns: which of them no namespace matches. A running operator logs that itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kopf._intents.selectors import is_exact_namespace
from kopf._objects import rules
from kopf._objects.apierrors import Forbidden, NotFound
from kopf._runtime.client.sync_api import SyncApi


def describe_unmatched(api: SyncApi, patterns: Collection[str]) -> Iterator[str]:
    """A sentence for each pattern without a namespace.

    Without the permission to list namespaces, only exact names are checked, as far as they can be read.
    Without any permission, nothing is known, and nothing is returned.
    """
    try:
        names = {body["metadata"]["name"] for body in api.list("namespaces", metadata_only=True)}
    except Forbidden:
        patterns = [name for name in patterns if is_exact_namespace(name) and _is_missing(api, name)]
        names = set()
    yield from rules.unmatched_namespaces(list(patterns), names)


def _is_missing(api: SyncApi, name: str) -> bool:
    try:
        api.get("namespaces", name, metadata_only=True)
    except NotFound:
        return True
    except Forbidden:
        return False
    return False
