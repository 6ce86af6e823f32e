"""Settings: plain mutable attributes, read at the moment of use unless noted. Times are in seconds."""

from __future__ import annotations

import concurrent.futures
import logging
import reprlib
import warnings
from collections.abc import Iterable
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

from kopf._intents.compatibility import environment_version, of_environment
from kopf._intents.handler_pool import HandlerPool
from kopf._intents.selectors import SelectorMapping
from kopf._intents.storages.diffbase import AnnotationsDiffBaseStorage, DiffBaseStorage
from kopf._intents.storages.progress import ProgressStorage, SmartProgressStorage
from kopf._objects.dataclass_methods import DataclassMethods
from kopf._objects.suggestions import did_you_mean

if TYPE_CHECKING:
    from kopf._intents.caching_settings import CachingSettings
    from kopf._intents.health_settings import HealthSettings
    from kopf._intents.leadership_settings import LeadershipSettings
    from kopf._intents.reconciling_settings import ReconcilingSettings
    from kopf._objects.reviews import WebhookServerProtocol

Backoffs = float | Iterable[float]
RENAMED = "Batching settings are now queueing settings. Please rename `settings.batching` ->"


class ChangeTracked(DataclassMethods):
    """Counts the assignments to the attributes of all settings. Changes inside of a value are not noticed."""

    _version: ClassVar[int] = 0

    if not TYPE_CHECKING:  # type checkers must find those settings that do not exist

        def __setattr__(self, name: str, value: Any) -> None:
            if not _is_known(type(self), name):
                _warn_of_unknown(type(self), name)
            super().__setattr__(name, value)
            ChangeTracked._version += 1

    @reprlib.recursive_repr()
    def __repr__(self) -> str:
        values = [(item, getattr(self, item.name)) for item in fields(self) if item.repr]  # type: ignore[arg-type]
        shown = [
            f"{item.name.lstrip('_')}={value!r}" for item, value in values if not _is_default(item, value)
        ]
        return f"{type(self).__qualname__}({', '.join(shown)})"


def _is_known(cls: type[Any], name: str) -> bool:
    return name in cls.__dataclass_fields__ or name.startswith("_") or hasattr(cls, name)


# A warning and not an error: Kopf 1.45 accepts any attributes, and operators may keep theirs here.
def _warn_of_unknown(cls: type[Any], name: str) -> None:
    if of_environment().ignores_unknown_settings:
        return
    names = [item for item in [*cls.__dataclass_fields__, *vars(cls)] if not item.startswith("_")]
    group = f"settings.{cls.__name__.removesuffix('Settings').lower()}".removesuffix(".operator")
    text = f"{group} has no {name!r}, and nothing reads it{did_you_mean(name, names)}"
    warnings.warn(text, UserWarning, stacklevel=3)


def _is_default(field: Field[Any], value: Any) -> bool:
    if field.default is not MISSING:
        return bool(value == field.default)
    made = field.default_factory() if field.default_factory is not MISSING else None
    if isinstance(made, ChangeTracked):
        return repr(value) == f"{type(made).__qualname__}()"
    is_similar = isinstance(made, concurrent.futures.Executor) or value == made or repr(value) == repr(made)
    return type(value) is type(made) and is_similar


def settings_version() -> int:
    """A number that changes with each assignment to any settings."""
    return ChangeTracked._version


@dataclass(eq=False, repr=False)
class ProcessSettings(ChangeTracked):
    """The process as a whole."""

    ultimate_exiting_timeout: float | None = 600
    """The timeout of the exit in seconds; then the process is killed. None: no timeout."""

    compat: str | None = field(default_factory=environment_version, repr=False, compare=False)
    """Restores the behaviour of this version of Kopf: `1.45`; None: off. The default is the variable
    `KOPF_COMPAT` of the environment. Read at the start."""


@dataclass(eq=False, repr=False)
class PostingSettings(ChangeTracked):
    """Posting of Kubernetes events about objects."""

    enabled: bool = True
    """Whether to post Kubernetes events at all."""

    loggers: bool = False
    """Whether to post log messages about objects."""

    level: int = logging.INFO
    """The lowest log level that is posted."""

    default_backoffs: Backoffs = (1, 1, 2, 3, 5, 8, 13, 21)
    """The pauses between the attempts to post an event of `kopf.event()` and similar ones, in seconds."""

    logging_backoffs: Backoffs = (1, 1, 2, 3, 5)
    """The pauses between the attempts to post a log message, in seconds."""

    worker_limit: int | None = None
    """The number of objects whose events are posted at the same time; None: no limit. Read once."""

    idle_timeout: float = 1.0
    """Accepted for compatibility, without effect: Kopf keeps no worker for idle objects. In seconds."""

    reporting_component: str = "kopf"
    """The reporting controller of the events."""

    reporting_instance: str = "dev"
    """The reporting instance of the events."""

    event_name_prefix: str = "kopf-event-"
    """The prefix of the generated names of events."""


@dataclass(eq=False, repr=False)
class PeeringSettings(ChangeTracked):
    """Coordination between operators: one runs, the others pause. Read once, after startup handlers."""

    name: str = "default"
    """The name of the peering object."""

    stealth: bool = False
    """Whether to hide keep-alives in the logs."""

    priority: int = 0
    """The priority: the operator with the highest one works, the others are paused."""

    lifetime: int = 60
    """The seconds after its last keep-alive for which an operator counts as alive."""

    mandatory: bool = False
    """Whether to pause while there is no peering object."""

    standalone: bool = False
    """Whether to ignore peering."""

    clusterwide: bool = False
    """Whether the peering is cluster-wide; set by the operator at its start."""

    @property
    def namespaced(self) -> bool:
        """Whether the peering is namespaced: the opposite of `clusterwide`."""
        return not self.clusterwide

    @namespaced.setter
    def namespaced(self, value: bool) -> None:
        self.clusterwide = not value


@dataclass(eq=False, repr=False)
class WatchingSettings(ChangeTracked):
    """Listing and watching of resources. Read once, after startup handlers."""

    server_timeout: float | None = None
    """The timeout of a watch request in the server, in seconds; None: chosen by the server."""

    client_timeout: float | None = None
    """The timeout of a watch request in the client, in seconds; None: no timeout."""

    connect_timeout: float | None = None
    """The connection timeout of watch requests, in seconds; None: as for other requests."""

    reconnect_backoff: float = 0.1
    """The seconds between watch requests."""

    inactivity_timeout: float = 70.0
    """The seconds without data before Kopf reconnects a watch; servers send a bookmark per minute."""

    chunk_size: int | None = None
    """The number of objects per page of a list; None: 500."""

    initial_streaming: bool = False
    """Whether to receive the initial objects through the watch instead of a list."""

    label_selectors: SelectorMapping[str] = field(default_factory=SelectorMapping)
    """Label selectors for the server, per resource; all matching ones are joined. None by default."""

    field_selectors: SelectorMapping[str] = field(default_factory=SelectorMapping)
    """Field selectors for the server, per resource; all matching ones are joined. None by default."""

    shard_selectors: SelectorMapping[str] = field(default_factory=SelectorMapping)
    """Shard selectors for the server, per resource; the first matching one is used. None by default."""

    derived_selectors: bool = False
    """Whether the server sends only objects whose labels match the filters of a handler."""


_BATCH_WINDOW = "Time-based event batching was removed. Please stop configuring it."


@dataclass(eq=False, repr=False)
class QueueingSettings(ChangeTracked):
    """Queues of events, one per object. Read once, after startup handlers, except for `error_delays`."""

    worker_limit: int | None = None
    """The number of objects per watch that are handled at the same time; None: no limit. Objects that wait
    for a retry, or after an error, do not count."""

    idle_timeout: float = 5.0
    """Accepted for compatibility, without effect: an idle object has no worker. In seconds."""

    exit_timeout: float = 2.0
    """The grace period for running handlers at the exit, in seconds."""

    error_delays: Iterable[float] = (1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610)
    """The delays of an object after unexpected errors in a row, in seconds; the last delay repeats."""

    max_pending_events: int = 100
    """The number of events per object that wait for event handlers and indices; the oldest are skipped."""

    _batch_window: float = 0.1

    @property
    def batch_window(self) -> float:
        """Deprecated, without effect."""
        warnings.warn(_BATCH_WINDOW, DeprecationWarning, stacklevel=2)
        return self._batch_window

    @batch_window.setter
    def batch_window(self, value: float) -> None:
        warnings.warn(_BATCH_WINDOW, DeprecationWarning, stacklevel=2)
        self._batch_window = value


@dataclass(eq=False, repr=False)
class ScanningSettings(ChangeTracked):
    """Discovery of resources and namespaces. Read once, after startup handlers."""

    disabled: bool = False
    """Whether to disable the watches of namespaces and CRDs."""


@dataclass(eq=False, repr=False)
class AdmissionSettings(ChangeTracked):
    """Validation and mutation of objects on their way to the cluster. Read once, after startup handlers."""

    server: WebhookServerProtocol | None = None
    """The webhook server."""

    managed: str | None = None
    """The name of the webhook configurations that Kopf manages; None: you manage them."""


@dataclass(eq=False, repr=False)
class ExecutionSettings(ChangeTracked):
    """Calls of handlers."""

    default_backoff: float = 60
    """The seconds before a retry after an exception that sets no delay."""

    executor: concurrent.futures.Executor = field(default_factory=HandlerPool)
    """The executor of synchronous handlers; by default, a pool of threads of Kopf."""

    _max_workers: int | None = None
    # The executor that the limit is for.
    _limited: concurrent.futures.Executor | None = field(default=None, repr=False, compare=False)

    @property
    def max_workers(self) -> int | None:
        """The number of synchronous handlers that run at the same time; None: the limit of the executor.

        A new value replaces the default executor by one of this size. For your own executor, it limits the
        number of running handlers.

        Raises `ValueError` if it is less than 1, and `TypeError` if the executor is not a pool of threads.
        """
        return self._max_workers

    @max_workers.setter
    def max_workers(self, value: int) -> None:
        if value < 1:
            raise ValueError("Can't set thread pool limit lower than 1.")
        self._max_workers = value
        if type(self.executor) is HandlerPool:
            # Running calls finish in the previous executor; its threads end afterwards.
            self.executor = HandlerPool(value)
        elif not isinstance(self.executor, concurrent.futures.ThreadPoolExecutor):
            raise TypeError("Current executor does not support `max_workers`.")
        self._limited = self.executor


@dataclass(eq=False, repr=False)
class BackgroundSettings(ChangeTracked):
    """Daemons and timers."""

    cancellation_polling: float = 60
    """The seconds between two checks whether a daemon has stopped."""

    instant_exit_timeout: float | None = None
    """The seconds for which Kopf waits for a daemon to stop at once; None: for the next setting."""

    instant_exit_zero_time_cycles: int | None = 10
    """The number of iterations of the event loop for which Kopf waits for a daemon to stop at once."""


@dataclass(eq=False, repr=False)
class NetworkingSettings(ChangeTracked):
    """Requests to the Kubernetes API. Read once, after startup handlers."""

    request_timeout: float | None = 5 * 60
    """The timeout of a request in seconds; None: no timeout."""

    connect_timeout: float | None = None
    """The timeout for establishing a connection, in seconds; None: 30 seconds."""

    error_backoffs: Backoffs = (1, 1, 2, 3, 5, 8, 13, 21)
    """The pauses between the attempts of a request, in seconds; an endless iterable retries forever."""

    enforce_retry_after: bool = False
    """Whether to wait for the time in `Retry-After` even if it is shorter than the pause."""

    trust_env: bool = False
    """Whether to use the proxies of the environment, if Kopf finds the credentials itself."""

    compression: bool = False
    """Whether responses may be compressed, for slow networks; not those of watches."""

    login_timeout: float = 60.0
    """The seconds for which the operator logs in again after credentials are rejected; then it exits."""

    request_limit: int | None = 50
    """The number of concurrent requests, without watches; None: no limit."""


@dataclass(eq=False, repr=False)
class ClientSettings(ChangeTracked):
    """The API client of handlers: the argument `api`."""

    field_manager: str | None = None
    """The field manager of the client's writes; None: `kopf`."""

    headers: dict[str, str] = field(default_factory=dict)
    """Additional headers of all requests; none by default. Read once, after startup handlers."""

    timeout: float | None = None
    """The timeout of a call with all its retries, in seconds; None: only that of the single requests."""


@dataclass(eq=False, repr=False)
class PersistenceSettings(ChangeTracked):
    """Persistence of the state of handlers with objects."""

    finalizer: str = "kopf.zalando.org/KopfFinalizerMarker"
    """The finalizer that blocks the deletion of objects until they are handled."""

    progress_storage: ProgressStorage = field(default_factory=SmartProgressStorage)
    """The storage of the progress of handlers; by default, a `kopf.SmartProgressStorage`."""

    diffbase_storage: DiffBaseStorage = field(default_factory=AnnotationsDiffBaseStorage)
    """The storage of the last handled essence; by default, a `kopf.AnnotationsDiffBaseStorage`."""

    consistency_timeout: float = 5.0
    """The timeout of waiting for the watch event after a patch, in seconds; 0: no waiting."""


@dataclass(eq=False, repr=False)
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
    client: ClientSettings = field(default_factory=ClientSettings)

    @property
    def reconciling(self) -> ReconcilingSettings:
        """The settings of reconcilers; operators without them do not load the module."""
        from kopf._intents.reconciling_settings import ReconcilingSettings

        return self.__dict__.setdefault("_reconciling", ReconcilingSettings())  # type: ignore[no-any-return]

    @property
    def caching(self) -> CachingSettings:
        """The settings of caches; operators without them do not load the module."""
        from kopf._intents.caching_settings import CachingSettings

        return self.__dict__.setdefault("_caching", CachingSettings())  # type: ignore[no-any-return]

    @property
    def health(self) -> HealthSettings:
        """The settings of health checks; operators without a status server do not load the module."""
        from kopf._intents.health_settings import HealthSettings

        return self.__dict__.setdefault("_health", HealthSettings())  # type: ignore[no-any-return]

    @property
    def leadership(self) -> LeadershipSettings:
        """The settings of leader election; operators without it do not load the module."""
        from kopf._intents.leadership_settings import LeadershipSettings

        return self.__dict__.setdefault("_leadership", LeadershipSettings())  # type: ignore[no-any-return]

    @property
    def batching(self) -> QueueingSettings:
        """Deprecated: the same as `queueing`."""
        warnings.warn(f"{RENAMED} `settings.queueing`", DeprecationWarning, stacklevel=2)
        return self.queueing
