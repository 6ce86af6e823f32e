"""Handlers of all kinds, as data classes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar

from kopf._intents.errors import ErrorsMode
from kopf._intents.filters import MetaFilters
from kopf._intents.selectors import Selector
from kopf._objects.dataclass_methods import FrozenDataclassMethods
from kopf._objects.dicts import FieldPath
from kopf._objects.reasons import Activity, Reason, WebhookType
from kopf._objects.typedefs import HandlerId


@dataclass(frozen=True, eq=False, repr=False)
class Handler(FrozenDataclassMethods):
    """A function with its id and its limits: a timeout since the first attempt (seconds), a number of
    attempts,
    a pause between them (seconds), a treatment of arbitrary errors. None is for defaults."""

    id: HandlerId
    fn: Callable[..., Any]
    param: Any | None
    errors: ErrorsMode | None
    timeout: float | None
    retries: int | None
    backoff: float | None

    # The way it is seen in logs.
    def __str__(self) -> str:
        return f"Handler {self.id!r}"


@dataclass(frozen=True, eq=False, repr=False)
class ActivityHandler(Handler):
    """A handler of something that concerns the operator as a whole."""

    activity: Activity | None
    _fallback: bool = False  # used only if there are no other handlers of this activity

    def __str__(self) -> str:
        return f"Activity {self.id!r}"


@dataclass(frozen=True, eq=False, repr=False)
class ResourceHandler(Handler):
    """A handler of objects, with its filters: resources, labels, annotations, fields; None: no filter."""

    selector: Selector | None
    labels: MetaFilters | None
    annotations: MetaFilters | None
    when: Callable[..., bool] | None
    field: FieldPath | None
    value: Any | None


@dataclass(frozen=True, eq=False, repr=False)
class WebhookHandler(ResourceHandler):
    """A handler of admission requests; its id is a part of the URL."""

    reason: WebhookType
    operations: Collection[str] | None
    subresource: str | None
    persistent: bool | None
    side_effects: bool | None
    ignore_failures: bool | None

    def __str__(self) -> str:
        return f"Webhook {self.id!r}"

    @property
    def operation(self) -> str | None:
        """Deprecated: the only operation; `ValueError` if there are several of them."""
        warnings.warn(
            "handler.operation is deprecated, use handler.operations", DeprecationWarning, stacklevel=2
        )
        if not self.operations:
            return None
        if len(self.operations) > 1:
            raise ValueError(
                f"{len(self.operations)} operations in the handler. Use it as handler.operations."
            )
        return next(iter(self.operations))


@dataclass(frozen=True, eq=False, repr=False)
class IndexingHandler(ResourceHandler):
    """A handler that fills an index; its id is the name of the index."""

    metadata_only: bool = False  # the metadata of objects is all it needs

    def __str__(self) -> str:
        return f"Indexer {self.id!r}"


@dataclass(frozen=True, eq=False, repr=False)
class WatchingHandler(ResourceHandler):
    """A handler of raw watch events: no progress, no retries."""

    metadata_only: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class ChangingHandler(ResourceHandler):
    """A handler of changes: for one reason, or (None) for any."""

    reason: Reason | None
    initial: bool | None  # for objects found at the start of the operator
    deleted: bool | None  # ... also for those that are being deleted
    requires_finalizer: bool | None
    field_needs_change: bool | None
    old: Any | None
    new: Any | None


@dataclass(frozen=True, eq=False, repr=False)
class ReconcilingHandler(ResourceHandler):
    """A reconciler, with its options as declared; None: of the settings."""

    owns: tuple[Any, ...]
    watches: tuple[Any, ...]
    changed: tuple[Any, ...]
    initial: bool | str
    deletion: bool
    finalizer: str | None
    debounce: float | None
    debounce_limit: float | None
    min_interval: float | None
    resync: float | None
    reconcile_timeout: float | None
    concurrency: int | None
    condition: str | None
    observe: bool
    reads_children: bool  # its function names the argument

    def __str__(self) -> str:
        return f"Reconciler {self.id!r}"


@dataclass(frozen=True, eq=False, repr=False)
class SpawningHandler(ResourceHandler):
    """A handler that works in background for as long as the object exists and matches."""

    requires_finalizer: bool | None
    initial_delay: float | Callable[..., float] | None


@dataclass(frozen=True, eq=False, repr=False)
class DaemonHandler(SpawningHandler):
    """A background handler that runs on its own until it is asked to stop; times are in seconds."""

    cancellation_backoff: float | None
    cancellation_timeout: float | None
    cancellation_polling: float | None
    metadata_only: bool = False

    def __str__(self) -> str:
        return f"Daemon {self.id!r}"


@dataclass(frozen=True, eq=False, repr=False)
class TimerHandler(SpawningHandler):
    """A background handler that is called again and again; times are in seconds."""

    sharp: bool | None
    idle: float | None
    interval: float | None
    metadata_only: bool = False

    def __str__(self) -> str:
        return f"Timer {self.id!r}"


HandlerT = TypeVar("HandlerT", bound=Handler)


def handler_with(cls: type[HandlerT], **options: Any) -> HandlerT:
    """A handler of this class with these options, and without all others."""
    others = dict.fromkeys(field.name for field in fields(cls) if field.default is MISSING)
    return cls(**{**others, **options})
