"""Functions of reconcilers' declarations: filters, `changed`, and `map`.

The module is imported only by operators with reconcilers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kopf._intents.handlers import ResourceHandler
from kopf._intents.reconciling import Owned, Watched
from kopf._objects.refs import Ref
from kopf._objects.typedefs import HandlerId

HASH_MASK = (1 << 64) - 1


def hash_values(parts: Iterable[Any], kwargs: Mapping[str, Any]) -> tuple[list[int | None], Exception | None]:
    """Call the functions among the parts of `changed`: the hashes of their values, and the last error.

    The hash of a failed function is None.
    """
    hashes: list[int | None] = []
    error: Exception | None = None
    for part in parts:
        if callable(part):
            try:
                hashes.append(_hash_of(part(**kwargs)) & HASH_MASK)
            except Exception as e:
                error = e
                hashes.append(None)
    return hashes, error


def _hash_of(value: Any) -> int:
    # In Python, the hashes of -1 and -2 are equal, as are those of 0 and of the empty string.
    if isinstance(value, tuple):
        return hash(tuple(_hash_of(item) for item in value))
    return hash((type(value), repr(value)) if isinstance(value, int | float) else value)


def filters_of(related: Owned | Watched) -> ResourceHandler:
    """The filters of a secondary kind as those of a handler, for their evaluation."""
    return ResourceHandler(
        id=HandlerId(""),
        fn=len,
        param=None,
        errors=None,
        timeout=None,
        retries=None,
        backoff=None,
        selector=None,
        labels=related.labels,
        annotations=related.annotations if isinstance(related, Watched) else None,
        when=related.when if isinstance(related, Watched) else None,
        field=None,
        value=None,
    )


def primaries_of(mapped: Any, namespace: str | None) -> Iterable[tuple[str | None, str, str | None]]:
    """The namespaces, names and uids of what a mapping function has returned."""
    if mapped is None:
        return
    if isinstance(mapped, str):
        head, _, name = mapped.rpartition("/")
        yield (head or namespace, name, None)
    elif isinstance(mapped, Ref):
        yield (mapped.namespace, mapped.name, mapped.uid)
    elif isinstance(mapped, Mapping):
        metadata = mapped.get("metadata") or {}
        yield (metadata.get("namespace"), metadata["name"], metadata.get("uid"))
    elif (
        isinstance(mapped, tuple) and len(mapped) == 2 and isinstance(mapped[1], str) and _is_name(mapped[0])
    ):
        yield (mapped[0], mapped[1], None)
    else:
        for item in mapped:
            yield from primaries_of(item, namespace)


def _is_name(value: Any) -> bool:
    return value is None or isinstance(value, str)
