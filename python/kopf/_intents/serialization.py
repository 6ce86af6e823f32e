"""Serialization of handlers and settings for the engine.

The values are JSON-like, and the types of the engine have the same fields. Functions are replaced by marks:
the engine calls them back.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

from kopf._intents import compatibility
from kopf._intents import settings as settings_
from kopf._intents.filters import MetaFilterToken
from kopf._intents.handlers import (
    ActivityHandler,
    ChangingHandler,
    DaemonHandler,
    Handler,
    IndexingHandler,
    ResourceHandler,
    TimerHandler,
    WatchingHandler,
    WebhookHandler,
)
from kopf._intents.selectors import SelectorMapping, serialize_selector
from kopf._intents.storages import diffbase, progress
from kopf._objects.dicts import parse_field

Json = dict[str, Any]

MAX_DELAYS = 1000
"""How many values are taken of an iterable without a length; with more of them, it counts as endless."""

DRAWN_SERIES = 10
"""How many times such an iterable is iterated over: requests use the results in turn."""

DRAWN_DELAYS = 100
"""How many values are taken in each of these iterations of an endless iterable."""

MIN_INTEGER, MAX_INTEGER = -(2**63), 2**64 - 1
"""The range of the integers in JSON that the engine reads."""

Iterated = dict[int, tuple[Iterator[float], list[float]]]
"""The values of the iterators that can be used only once, by the ids of these iterators."""


def serialize_handler(handler: Handler) -> Json:
    """Serialize a handler: the common fields, and those of its kind (see the key `kind`)."""
    return serialize_common(handler) | _serialize_kind(handler)


def serialize_common(handler: Handler) -> Json:
    """Serialize the fields that handlers of several kinds have."""
    fields: Json = {
        "id": str(handler.id),
        "key": id(handler.fn),
        "errors": handler.errors.name.lower() if handler.errors is not None else None,
        "timeout": handler.timeout,
        "retries": whole_limit(handler.retries),
        "backoff": handler.backoff,
        "selector": None,
        "labels": [],
        "annotations": [],
        "when": False,
        "field": None,
        "value": None,
    }
    if isinstance(handler, ResourceHandler):
        fields |= {
            "selector": serialize_selector(handler.selector) if handler.selector is not None else None,
            "labels": [[key, serialize_filter(value)] for key, value in (handler.labels or {}).items()],
            "annotations": [
                [key, serialize_filter(value)] for key, value in (handler.annotations or {}).items()
            ],
            "when": handler.when is not None,
            "field": list(handler.field) if handler.field else None,
            "value": serialize_filter(handler.value),
            "metadata_only": getattr(handler, "metadata_only", False),
        }
    return fields


def whole_limit(limit: Any) -> Any:
    """The limit of a count as a whole number; None if it is never reached.

    In Kopf 1.45, a limit can be any number, since it is only compared with the count. Other values are left
    for the engine to reject.
    """
    if not hasattr(type(limit), "__ceil__"):
        return limit
    if limit != limit or limit > MAX_INTEGER:
        return None
    return math.ceil(limit) if limit > 0 else 0


def _serialize_kind(handler: Handler) -> Json:
    if isinstance(handler, WatchingHandler):
        return {"kind": "watching"}
    if isinstance(handler, IndexingHandler):
        return {"kind": "indexing"}
    if isinstance(handler, ActivityHandler):
        return {
            "kind": "activity",
            "activity": handler.activity.value if handler.activity is not None else None,
            "fallback": handler._fallback,
        }
    if isinstance(handler, ChangingHandler):
        return {
            "kind": "changing",
            "reason": handler.reason.value if handler.reason is not None else None,
            "initial": bool(handler.initial),
            "deleted": bool(handler.deleted),
            "requires_finalizer": bool(handler.requires_finalizer),
            "field_needs_change": handler.field_needs_change,
            "old": serialize_filter(handler.old),
            "new": serialize_filter(handler.new),
        }
    if isinstance(handler, DaemonHandler):
        return {
            "kind": "daemon",
            "requires_finalizer": bool(handler.requires_finalizer),
            **_serialize_initial_delay(handler.initial_delay),
            "cancellation_backoff": handler.cancellation_backoff,
            "cancellation_timeout": handler.cancellation_timeout,
            "cancellation_polling": handler.cancellation_polling,
        }
    if isinstance(handler, TimerHandler):
        return {
            "kind": "timer",
            "requires_finalizer": bool(handler.requires_finalizer),
            **_serialize_initial_delay(handler.initial_delay),
            "sharp": bool(handler.sharp),
            "idle": handler.idle,
            "interval": handler.interval,
        }
    if isinstance(handler, WebhookHandler):
        return {
            "kind": "webhook",
            "reason": handler.reason.value,
            "operations": sorted(handler.operations) if handler.operations is not None else None,
            "subresource": handler.subresource,
            "persistent": bool(handler.persistent),
            "side_effects": bool(handler.side_effects),
            "ignore_failures": bool(handler.ignore_failures),
        }
    raise TypeError(f"Unsupported type of a handler: {handler!r}")


# A delay that is a function is asked for when it is needed.
def _serialize_initial_delay(delay: Any) -> Json:
    is_callable = callable(delay)
    return {"initial_delay": None if is_callable else delay, "initial_delay_callable": is_callable}


def serialize_filter(value: Any) -> Json | None:
    """Describe a filter by a label, an annotation, or a field value; None is for no filter."""
    if value is None:
        return None
    if value is MetaFilterToken.PRESENT:
        return {"present": True}
    if value is MetaFilterToken.ABSENT:
        return {"absent": True}
    if callable(value) or not _is_json(value):
        return {"callable": True}
    return {"equal": value}


_JSON_EQUALITIES: tuple[Any, ...] = (str.__eq__, int.__eq__, float.__eq__)


# Other values are compared in Python: they can be equal to values of other types, or to none.
def _is_json(value: Any) -> bool:
    if isinstance(value, float) and not math.isfinite(value):
        return False
    if isinstance(value, int) and not MIN_INTEGER <= value <= MAX_INTEGER:
        return False
    if type(value) is list:
        return all(map(_is_json, value))
    if type(value) is dict:
        return all(type(key) is str and _is_json(item) for key, item in value.items())
    return value is None or type(value).__eq__ in _JSON_EQUALITIES


def serialize_settings(settings: settings_.OperatorSettings, iterated: Iterated | None = None) -> Json:
    """Describe the settings, as they are at the moment.

    Pass the same `iterated` every time: it keeps the values of iterators, which can be used only once.
    """
    iterated = iterated if iterated is not None else {}
    compatibility.check_version(settings.process.compat)
    posting, watching = settings.posting, settings.watching
    return {
        "process": {"ultimate_exiting_timeout": settings.process.ultimate_exiting_timeout},
        "posting": {
            "enabled": posting.enabled,
            "loggers": posting.loggers,
            "level": posting.level,
            "worker_limit": whole_limit(posting.worker_limit),
            "idle_timeout": posting.idle_timeout,
            "reporting_component": posting.reporting_component,
            "reporting_instance": posting.reporting_instance,
            "event_name_prefix": posting.event_name_prefix,
        },
        "peering": {
            **_select_attrs(settings.peering, "name stealth mandatory standalone clusterwide"),
            "priority": _integer(settings.peering.priority),
            "lifetime": _integer(settings.peering.lifetime),
        },
        "watching": {
            **_select_attrs(watching, "server_timeout client_timeout connect_timeout reconnect_backoff"),
            **_select_attrs(watching, "inactivity_timeout chunk_size initial_streaming"),
            **_select_attrs(watching, "derived_selectors"),
            "label_selectors": _serialize_selectors(watching.label_selectors),
            "field_selectors": _serialize_selectors(watching.field_selectors),
            "shard_selectors": _serialize_selectors(watching.shard_selectors),
        },
        "queueing": {
            **_select_attrs(settings.queueing, "idle_timeout exit_timeout max_pending_events"),
            "worker_limit": whole_limit(settings.queueing.worker_limit),
            "error_delays": serialize_delays(settings.queueing.error_delays, iterated),
        },
        "scanning": {"disabled": settings.scanning.disabled},
        "admission": {"managed": settings.admission.managed},
        "execution": _select_attrs(settings.execution, "default_backoff max_workers"),
        "background": _select_attrs(
            settings.background,
            "cancellation_polling instant_exit_timeout instant_exit_zero_time_cycles",
        ),
        "networking": {
            **_select_attrs(
                settings.networking, "request_timeout connect_timeout request_limit login_timeout"
            ),
            **_select_attrs(settings.networking, "enforce_retry_after trust_env compression"),
            "error_backoffs": serialize_backoffs(settings.networking.error_backoffs, iterated),
        },
        "client": {"headers": _check_headers(settings.client.headers)},
        "persistence": {
            "finalizer": settings.persistence.finalizer,
            "progress_storage": serialize_progress_storage(settings.persistence.progress_storage),
            "diffbase_storage": serialize_diffbase_storage(settings.persistence.diffbase_storage),
            "consistency_timeout": settings.persistence.consistency_timeout,
        },
        **_serialize_health(settings),
        "compat": compatibility.of_settings(settings).uses_compatible_engine,
    }


def has_leader_election(settings: settings_.OperatorSettings) -> bool:
    """Whether `settings.leadership.enabled` is set."""
    return "_leadership" in vars(settings) and settings.leadership.enabled


def names_lease(settings: settings_.OperatorSettings) -> bool:
    """Whether leader election is configured, though it may be disabled."""
    return "_leadership" in vars(settings) and (settings.leadership.enabled or bool(settings.leadership.name))


def has_status_address(settings: settings_.OperatorSettings) -> bool:
    """Whether `settings.health.address` is set."""
    return "_health" in vars(settings) and settings.health.address is not None


# The group is not created only to be serialized: that would load its module.
def _serialize_health(settings: settings_.OperatorSettings) -> Json:
    if "_health" not in vars(settings):
        return {}
    limits = "loop_limit engine_limit border_limit supervision_limit deaf_limit stall_limit handler_limit"
    others = "credentials_limit ready_needs_streams ready_when"
    return {"health": _select_attrs(settings.health, f"{limits} {others}")}


def _check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or not re.fullmatch(r"[\t -~]*", value):
            # The value may be a secret.
            raise ValueError(f"settings.client.headers: the header {name!r} cannot be sent.")
    return dict(headers)


def _select_attrs(group: Any, names: str) -> Json:
    return {name: getattr(group, name) for name in names.split()}


def _integer(number: Any) -> Any:
    return int(number) if isinstance(number, float) else number


def _serialize_selectors(mapping: Mapping[Any, str]) -> list[list[Any]]:
    selectors = mapping if isinstance(mapping, SelectorMapping) else SelectorMapping(mapping)
    return [[serialize_selector(selector), value] for selector, value in selectors.items()]


def serialize_delays(delays: settings_.Backoffs, iterated: Iterated) -> list[float]:
    """List the delays; a single number is one delay.

    The engine repeats the last one, so that the first ones of many are enough.
    """
    if not isinstance(delays, Iterable):
        return [float(delays)]
    if isinstance(delays, Iterator):
        return _values_of(delays, iterated)
    return [float(delay) for delay in itertools.islice(delays, MAX_DELAYS)]


def serialize_backoffs(backoffs: settings_.Backoffs, iterated: Iterated) -> list[float] | Json:
    """List the delays between the attempts of a request; a single number is one delay.

    Iterables without a length can be endless, and can give other values each time, such as random ones.
    Kopf 1.45 iterates over them for each request. The engine gets several series of their values.
    """
    if not isinstance(backoffs, Iterable):
        return [float(backoffs)]
    if isinstance(backoffs, Sized):
        return [float(delay) for delay in itertools.islice(backoffs, len(backoffs))]
    if isinstance(backoffs, Iterator):
        values = _values_of(backoffs, iterated)
        return {"series": [values[:MAX_DELAYS]], "endless": len(values) > MAX_DELAYS}
    first = [float(delay) for delay in itertools.islice(backoffs, MAX_DELAYS + 1)]
    endless = len(first) > MAX_DELAYS
    limit = DRAWN_DELAYS if endless else MAX_DELAYS
    others = [[float(delay) for delay in itertools.islice(backoffs, limit)] for _ in range(1, DRAWN_SERIES)]
    return {"series": [first[:limit], *others], "endless": endless}


def _values_of(iterator: Iterator[float], iterated: Iterated) -> list[float]:
    if id(iterator) not in iterated:  # the iterator is kept there, so that no other one gets this id
        values = [float(value) for value in itertools.islice(iterator, MAX_DELAYS + 1)]
        iterated[id(iterator)] = iterator, values
    return iterated[id(iterator)][1]


# Only the exact classes are known to the engine: anything inherited can behave differently, and is asked in
# Python.
_DIFFBASE_STORAGES = (
    diffbase.AnnotationsDiffBaseStorage,
    diffbase.StatusDiffBaseStorage,
    diffbase.MultiDiffBaseStorage,
)


def serialize_progress_storage(storage: progress.ProgressStorage) -> Json:
    """Describe a storage of progress; the engine does not know those of users and their combinations."""
    cls = type(storage)
    if (
        isinstance(storage, progress.AnnotationsProgressStorage)
        and cls is progress.AnnotationsProgressStorage
    ):
        return {"type": "Annotations", **_select_attrs(storage, "prefix verbose touch_key v1")}
    if isinstance(storage, progress.StatusProgressStorage) and cls in (
        progress.StatusProgressStorage,
        progress.ReadOnlyStatusProgressStorage,
    ):
        return {
            "type": "Status",
            "field": list(parse_field(storage.field)),
            "touch_field": list(parse_field(storage.touch_field)),
            "read_only": cls is progress.ReadOnlyStatusProgressStorage,
        }
    if isinstance(storage, progress.MultiProgressStorage) and cls in (
        progress.MultiProgressStorage,
        progress.SmartProgressStorage,
    ):
        return _serialize_multi([serialize_progress_storage(nested) for nested in storage.storages])
    return {"type": "Custom"}


def serialize_diffbase_storage(
    storage: diffbase.DiffBaseStorage, outer_ignored: Sequence[list[str]] = ()
) -> Json:
    """Describe a storage of essences; the engine does not know those of users and their combinations.

    `outer_ignored` are the ignored fields of the storage that contains this one.
    """
    cls = type(storage)
    if cls not in _DIFFBASE_STORAGES:
        return {"type": "Custom"}
    ignored = [*outer_ignored, *(list(parse_field(field)) for field in storage.ignored_fields)]
    if isinstance(storage, diffbase.AnnotationsDiffBaseStorage):
        return {"type": "Annotations", **_select_attrs(storage, "prefix key v1"), "ignored_fields": ignored}
    if isinstance(storage, diffbase.StatusDiffBaseStorage):
        return {"type": "Status", "field": list(parse_field(storage.field)), "ignored_fields": ignored}
    assert isinstance(storage, diffbase.MultiDiffBaseStorage)
    return _serialize_multi([serialize_diffbase_storage(nested, ignored) for nested in storage.storages])


def _serialize_multi(storages: list[Json]) -> Json:
    is_custom = any(storage["type"] == "Custom" for storage in storages)
    return {"type": "Custom"} if is_custom else {"type": "Multi", "storages": storages}
