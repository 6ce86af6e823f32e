"""Serialization of reconcilers for the engine.

The module is imported only by operators with reconcilers.
"""

from __future__ import annotations

from typing import Any

from kopf._intents.handlers import ReconcilingHandler
from kopf._intents.namespaces import serialize_namespaces
from kopf._intents.reconciling import Owned, Watched, needs_only_metadata
from kopf._intents.reconciling_settings import Backoff, ReconcilingSettings
from kopf._intents.selectors import serialize_selector
from kopf._intents.serialization import serialize_common, serialize_filter


def serialize_reconciler(handler: ReconcilingHandler, settings: ReconcilingSettings) -> dict[str, Any]:
    """Serialize a reconciler, with the defaults of the settings."""

    def default(name: str) -> Any:
        value = getattr(handler, name)
        return getattr(settings, name) if value is None else value

    initial = {True: "all", False: "none", "unobserved": "unobserved"}[handler.initial]
    backoff = handler.backoff if handler.backoff is not None else settings.backoff
    return serialize_common(handler) | {
        "kind": "reconciling",
        "backoff": None,
        "owns": [
            _serialize_related(item, {"owned": {"controller": item.controller, "own_writes": item.echoes}})
            | {"metadata_only": not handler.reads_children and needs_only_metadata(item)}
            for item in handler.owns
        ],
        "watches": [
            _serialize_related(item, _serialize_relation(item)) | {"metadata_only": needs_only_metadata(item)}
            for item in handler.watches
        ],
        "changed": [_serialize_part(part) for part in handler.changed],
        "initial": initial,
        "deletion": handler.deletion,
        "finalizer": handler.finalizer,
        "debounce": float(default("debounce")),
        "debounce_limit": handler.debounce_limit,
        "min_interval": float(handler.min_interval or 0),
        "resync": default("resync"),
        "concurrency": int(default("concurrency")),
        "reconcile_timeout": default("reconcile_timeout"),
        "delays": _serialize_backoff(backoff),
        "exit_timeout": float(settings.exit_timeout),
        "pause_annotation": settings.pause_annotation,
        "warn_after": float(settings.warn_after),
        "hot_loop": int(settings.loop),
    }


def _serialize_backoff(backoff: Any) -> Any:
    if isinstance(backoff, Backoff):
        return {
            "growing": {
                "first": float(backoff.first),
                "factor": float(backoff.factor),
                "most": float(backoff.most),
                "jitter": float(backoff.jitter),
            }
        }
    return "computed" if callable(backoff) else {"constant": float(backoff)}


def _serialize_part(part: Any) -> Any:
    if callable(part):
        return "function"
    return {"word": part} if isinstance(part, str) else {"path": list(part)}


def _serialize_relation(watched: Watched) -> Any:
    if watched.by is None:
        return "mapped"
    namespace = list(watched.by.namespace) if watched.by.namespace else None
    return {"named": {"name": watched.by.name, "namespace": namespace}}


def _serialize_related(related: Owned | Watched, relation: Any) -> dict[str, Any]:
    annotations = related.annotations if isinstance(related, Watched) else None
    namespaces = related.namespaces if isinstance(related, Watched) else None
    return {
        "selector": serialize_selector(related.selector),
        "labels": [[key, serialize_filter(value)] for key, value in (related.labels or {}).items()],
        "annotations": [[key, serialize_filter(value)] for key, value in (annotations or {}).items()],
        "when": isinstance(related, Watched) and related.when is not None,
        "changed": [_serialize_part(part) for part in related.changed],
        "relation": relation,
        "namespaces": serialize_namespaces(namespaces),
    }
