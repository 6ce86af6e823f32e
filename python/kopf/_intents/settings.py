"""Settings of an operator: names, types, and defaults.

All settings are plain mutable attributes, read at the moment of use unless noted. Times are in seconds.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import logging
import os
import reprlib
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from kopf._intents.selectors import SelectorMapping
from kopf._intents.storages.diffbase import AnnotationsDiffBaseStorage, DiffBaseStorage
from kopf._intents.storages.progress import ProgressStorage, SmartProgressStorage
from kopf._objects.reviews import WebhookServerProtocol
from kopf._objects.suggestions import did_you_mean

Backoffs = float | Iterable[float]

COMPAT_VERSION = "1.45"
"""The version of Kopf whose behaviour can be asked for."""

COMPAT_1_45 = os.environ.get("KOPF_COMPAT") == COMPAT_VERSION
"""Whether the environment asks for it."""


class HandlerPool(concurrent.futures.ThreadPoolExecutor):
    """The default executor of synchronous handlers: a pool of threads whose size is known."""

    def __init__(self, size: int | None = None) -> None:
        self.size = size if size is not None else min(32, (os.cpu_count() or 1) + 4)
        super().__init__(max_workers=self.size)


class ChangeTracked:
    """Counts the assignments to the attributes of all settings, so that it is cheap to know that nothing has
    changed. Changes inside of a value, such as in a list, are not noticed.
    """

    _version: ClassVar[int] = 0

    if not TYPE_CHECKING:  # type checkers must find those settings that do not exist

        def __setattr__(self, name: str, value: Any) -> None:
            if not _is_known(type(self), name):
                _warn_of_unknown(type(self), name)
            super().__setattr__(name, value)
            ChangeTracked._version += 1

    @reprlib.recursive_repr()
    def __repr__(self) -> str:
        fields = [(item, getattr(self, item.name)) for item in dataclasses.fields(self) if item.repr]  # type: ignore[arg-type]
        shown = [
            f"{item.name.lstrip('_')}={value!r}" for item, value in fields if not _is_default(item, value)
        ]
        return f"{type(self).__qualname__}({', '.join(shown)})"


def _is_known(cls: type[Any], name: str) -> bool:
    return name in cls.__dataclass_fields__ or name.startswith("_") or hasattr(cls, name)


# A warning and not an error: Kopf 1.45 accepts any attributes, and operators may keep theirs here.
def _warn_of_unknown(cls: type[Any], name: str) -> None:
    if COMPAT_1_45:
        return
    known_names = [item for item in [*cls.__dataclass_fields__, *vars(cls)] if not item.startswith("_")]
    group = cls.__name__.removesuffix("Settings").lower()
    group_name = "settings" if group == "operator" else f"settings.{group}"
    text = f"{group_name} has no {name!r}, and nothing reads it{did_you_mean(name, known_names)}"
    warnings.warn(text, UserWarning, stacklevel=3)


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    if field.default is not dataclasses.MISSING:
        return bool(value == field.default)
    made = field.default_factory() if field.default_factory is not dataclasses.MISSING else None
    if isinstance(made, ChangeTracked):
        return repr(value) == f"{type(made).__qualname__}()"
    if isinstance(made, concurrent.futures.Executor):
        return type(value) is type(made)
    return type(value) is type(made) and (value == made or repr(value) == repr(made))


@dataclass(repr=False)
class ProcessSettings(ChangeTracked):
    """The process as a whole."""

    ultimate_exiting_timeout: float | None = 600
    """How long the operator can be exiting before it is killed; None: forever."""

    compat: str | None = field(default=os.environ.get("KOPF_COMPAT") or None, repr=False, compare=False)
    """The version of Kopf to behave as even where ours is better: `1.45`; None: none. Read at the start."""


@dataclass(repr=False)
class PostingSettings(ChangeTracked):
    """Posting of Kubernetes events about objects."""

    enabled: bool = True
    """Whether to post anything at all."""

    loggers: bool = False
    """Whether to post what is logged by the loggers of objects."""

    level: int = logging.INFO
    """The lowest level of what is posted."""

    default_backoffs: Backoffs = (1, 1, 2, 3, 5, 8, 13, 21)
    """The pauses between the attempts to post what was posted explicitly."""

    logging_backoffs: Backoffs = (1, 1, 2, 3, 5)
    """The pauses between the attempts to post what was logged."""

    worker_limit: int | None = None
    """For how many objects events are posted at the same time."""

    idle_timeout: float = 1.0
    """Accepted for compatibility, and has no effect: nothing is kept for objects without events."""

    reporting_component: str = "kopf"
    """Who posts: the controller."""

    reporting_instance: str = "dev"
    """Who posts: the instance of the controller."""

    event_name_prefix: str = "kopf-event-"
    """The beginning of the generated names of events."""


@dataclass(repr=False)
class PeeringSettings(ChangeTracked):
    """Agreements between operators on who is paused."""

    name: str = "default"
    """The name of the peering object."""

    stealth: bool = False
    """Whether to keep quiet about keep-alives in the logs."""

    priority: int = 0
    """The operator with the highest priority works, the others are paused."""

    lifetime: int = 60
    """For how long an operator counts as alive after its last keep-alive."""

    mandatory: bool = False
    """Whether to be paused when there is no peering object."""

    standalone: bool = False
    """Whether to ignore peering."""

    clusterwide: bool = False
    """Whether the peering is of the cluster; set by the operator at its start."""

    @property
    def namespaced(self) -> bool:
        """Whether the peering is of a namespace: the opposite of `clusterwide`."""
        return not self.clusterwide

    @namespaced.setter
    def namespaced(self, value: bool) -> None:
        self.clusterwide = not value


@dataclass(repr=False)
class WatchingSettings(ChangeTracked):
    """Listing and watching of resources."""

    server_timeout: float | None = None
    """How long the server keeps a watch request."""

    client_timeout: float | None = None
    """How long the client keeps a watch request."""

    connect_timeout: float | None = None
    """How long the client tries to connect; None: as for other requests."""

    reconnect_backoff: float = 0.1
    """The pause between watch requests."""

    inactivity_timeout: float = 70.0 if COMPAT_1_45 else 30.0
    """After how long a silence a watch request counts as dead."""

    chunk_size: int | None = None
    """How many objects are listed by one request; None: 500."""

    initial_streaming: bool = False
    """Whether to get the initial objects by the watch request instead of listing them."""

    label_selectors: SelectorMapping[str] = field(default_factory=SelectorMapping)
    """Label selectors to be applied by the server, per resource; all matching ones are joined."""

    field_selectors: SelectorMapping[str] = field(default_factory=SelectorMapping)
    """Field selectors to be applied by the server, per resource; all matching ones are joined."""

    shard_selectors: SelectorMapping[str] = field(default_factory=SelectorMapping)
    """Shard selectors to be applied by the server, per resource; the first matching one is used."""

    derived_selectors: bool = False
    """Whether only those objects are asked for whose labels fit the filters of some handler."""


_BATCH_WINDOW = "Time-based event batching was removed. Please stop configuring it."


@dataclass(repr=False)
class QueueingSettings(ChangeTracked):
    """Queues of events, one per object."""

    worker_limit: int | None = None
    """How many objects are handled at the same time."""

    idle_timeout: float = 5.0
    """Accepted, but without an effect: an idle object has no worker."""

    exit_timeout: float = 2.0
    """For how long the queues are being depleted when the operator exits."""

    error_delays: Iterable[float] = (1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610)
    """How long an object is left alone after each next unexpected error; the last delay repeats."""

    max_pending_events: int = 100
    """How many events of one object wait for its event handlers and indices; the oldest are skipped."""

    _batch_window: float = 0.1

    @property
    def batch_window(self) -> float:
        """Deprecated and without an effect."""
        warnings.warn(_BATCH_WINDOW, DeprecationWarning, stacklevel=2)
        return self._batch_window

    @batch_window.setter
    def batch_window(self, value: float) -> None:
        warnings.warn(_BATCH_WINDOW, DeprecationWarning, stacklevel=2)
        self._batch_window = value


@dataclass(repr=False)
class ScanningSettings(ChangeTracked):
    """Discovery of resources and namespaces."""

    disabled: bool = False
    """Whether not to watch for changes in namespaces and custom resource definitions."""


@dataclass(repr=False)
class AdmissionSettings(ChangeTracked):
    """Validation and mutation of objects on their way to the cluster. Read once, after startup handlers."""

    server: WebhookServerProtocol | None = None
    """Who serves the requests of Kubernetes."""

    managed: str | None = None
    """The name of the webhook configurations to be kept up to date; None: they are managed by others."""


@dataclass(repr=False)
class ExecutionSettings(ChangeTracked):
    """Calls of handlers."""

    default_backoff: float = 60
    """The pause after an arbitrary error of a handler."""

    executor: concurrent.futures.Executor = field(default_factory=HandlerPool)
    """Where synchronous handlers are run."""

    _max_workers: int | None = None
    # The executor that the limit is for.
    _limited: concurrent.futures.Executor | None = field(default=None, repr=False, compare=False)

    @property
    def max_workers(self) -> int | None:
        """How many synchronous handlers run at the same time; None: as the executor decides.

        The default executor is replaced by one of this size. In an executor of yours, at most so many
        handlers run at the same time, but never more than it has threads.

        Setting it raises `ValueError` if it is less than 1, and `TypeError` if the executor is not a pool of
        threads.
        """
        return self._max_workers

    @max_workers.setter
    def max_workers(self, value: int) -> None:
        if value < 1:
            raise ValueError("Can't set thread pool limit lower than 1.")
        self._max_workers = value
        if type(self.executor) is HandlerPool:
            # What runs in the previous one goes on there; its threads end with it.
            self.executor = HandlerPool(value)
        elif not isinstance(self.executor, concurrent.futures.ThreadPoolExecutor):
            raise TypeError("Current executor does not support `max_workers`.")
        self._limited = self.executor

    @property
    def _limit(self) -> int | None:
        """How many calls the current executor gets at the same time, if it is limited."""
        return self._max_workers if self._limited is self.executor else None


@dataclass(repr=False)
class BackgroundSettings(ChangeTracked):
    """Daemons and timers."""

    cancellation_polling: float = 60
    """How often a daemon that does not exit is checked."""

    instant_exit_timeout: float | None = None
    """For how long a daemon is waited for, before it counts as not exiting at once."""

    instant_exit_zero_time_cycles: int | None = 10
    """For how many cycles of the event loop a daemon is waited for, before it counts as not exiting at once.
    """


@dataclass(repr=False)
class NetworkingSettings(ChangeTracked):
    """Requests to the Kubernetes API."""

    request_timeout: float | None = 5 * 60
    """How long a request can last."""

    connect_timeout: float | None = None
    """How long a connection can be being established; `None`: 30 seconds."""

    error_backoffs: Backoffs = (1, 1, 2, 3, 5, 8, 13, 21)
    """The pauses between the attempts of a request; an iterable without an end: it is retried for ever."""

    enforce_retry_after: bool = False
    """Whether to wait for the server's `Retry-After`, even if it is longer than the pause."""

    trust_env: bool = False
    """Whether to use proxies and netrc of the environment, when the credentials are found by the framework.
    """

    login_timeout: float = 60.0
    """How long the server may reject all credentials after it has accepted some; then the operator exits."""

    request_limit: int | None = 50
    """How many requests are under way at the same time, apart from watches; `None`: any number."""


@dataclass(repr=False)
class PersistenceSettings(ChangeTracked):
    """Persistence of the state of handlers with objects."""

    finalizer: str = "kopf.zalando.org/KopfFinalizerMarker"
    """What blocks the deletion of objects until they are handled."""

    progress_storage: ProgressStorage = field(default_factory=SmartProgressStorage)
    """Where the progress of handlers is kept."""

    diffbase_storage: DiffBaseStorage = field(default_factory=AnnotationsDiffBaseStorage)
    """Where the last handled essence is kept."""

    consistency_timeout: float = 5.0
    """How long to wait for the watch event caused by our own patch; 0: not at all."""


@dataclass(repr=False)
class OperatorSettings(ChangeTracked):
    """All settings of an operator, in groups."""

    process: ProcessSettings = field(default_factory=ProcessSettings)
    posting: PostingSettings = field(default_factory=PostingSettings)
    peering: PeeringSettings = field(default_factory=PeeringSettings)
    watching: WatchingSettings = field(default_factory=WatchingSettings)
    queueing: QueueingSettings = field(default_factory=QueueingSettings)
    scanning: ScanningSettings = field(default_factory=ScanningSettings)
    admission: AdmissionSettings = field(default_factory=AdmissionSettings)
    execution: ExecutionSettings = field(default_factory=ExecutionSettings)
    background: BackgroundSettings = field(default_factory=BackgroundSettings)
    networking: NetworkingSettings = field(default_factory=NetworkingSettings)
    persistence: PersistenceSettings = field(default_factory=PersistenceSettings)

    @property
    def batching(self) -> QueueingSettings:
        """Deprecated: the same as `queueing`."""
        warnings.warn(
            "Batching settings are now queueing settings. "
            "Please rename `settings.batching` -> `settings.queueing`",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.queueing
