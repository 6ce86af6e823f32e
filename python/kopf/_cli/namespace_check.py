"""Check of namespace patterns: which of them no namespace matches. A running operator logs that itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kopf._intents.selectors import is_exact_namespace, match_namespace
from kopf._objects.apierrors import Forbidden, NotFound
from kopf._objects.suggestions import did_you_mean
from kopf._runtime.client.sync_api import SyncApi


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
