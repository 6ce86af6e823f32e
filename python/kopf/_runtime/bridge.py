"""Batches of host tasks from the engine, and of their completions to the engine.

Only this module imports the compiled one, apart from `kopf._objects.rules` and the bindings of the testing
kit (`kopf._testing.bindings`); other modules import its names from here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from kopf._kopf import (
    CHILDREN_FINALIZER,
    LOGGERS,
    Activation,
    AdmissionReview,
    ApiClient,
    ApiRequest,
    ApiResponse,
    AppliedChildren,
    ApplyPatchFns,
    Attempt,
    CacheChanges,
    CacheReader,
    CallChangeHandler,
    CallDaemon,
    CallEventHandler,
    CallFailure,
    CallIndexers,
    CallReconciler,
    CancelCycle,
    Change,
    ComputeKeys,
    CycleClosed,
    DaemonEnded,
    Election,
    Engine,
    EngineStopped,
    FetchState,
    FilterDaemons,
    FilterHandlers,
    GetInitialDelay,
    HandlerCall,
    IndexerCall,
    InspectObject,
    LazyAttribute,
    LineFormat,
    LineWriter,
    Log,
    Login,
    MatchNamespaces,
    MatchResources,
    Object,
    ObjectDeleted,
    ObjectUpdated,
    Outcome,
    PeeringWritten,
    Probe,
    ReconcilerEnded,
    RequestOptions,
    ResponseQueue,
    RunningCall,
    SelectHandlers,
    StatusServer,
    StopDaemons,
    StopReconciler,
    StoreState,
    SubHandlers,
    TaskCoroutine,
    Term,
    UserStream,
    WebhookRequest,
    WebhookServer,
    __version__,
    build_certificate,
    change_conditions,
    current_address,
    describe_certificate,
    explain,
    has_exec_plugin,
    has_kubeconfig,
    has_named_kubeconfig,
    has_service_account,
    inspect,
    json_copy,
    live_peers,
    read_kubeconfig,
    read_referenced_credentials,
    read_service_account,
    release_patch,
)
from kopf._runtime.errors import ENDING_ERRORS, message_of

__all__ = [
    "CHILDREN_FINALIZER",
    "LOGGERS",
    "TRACES",
    "Activation",
    "AdmissionReview",
    "ApiClient",
    "ApiRequest",
    "ApiResponse",
    "AppliedChildren",
    "ApplyPatchFns",
    "Attempt",
    "Bridge",
    "CacheChanges",
    "CacheReader",
    "CallChangeHandler",
    "CallDaemon",
    "CallEventHandler",
    "CallFailure",
    "CallIndexers",
    "CallReconciler",
    "CancelCycle",
    "Change",
    "CompletableItem",
    "ComputeKeys",
    "CycleClosed",
    "DaemonEnded",
    "Election",
    "Engine",
    "EngineStopped",
    "FetchState",
    "FilterDaemons",
    "FilterHandlers",
    "GetInitialDelay",
    "HandlerCall",
    "IndexerCall",
    "InspectObject",
    "LazyAttribute",
    "LineFormat",
    "LineWriter",
    "Log",
    "Login",
    "MatchNamespaces",
    "MatchResources",
    "Object",
    "ObjectDeleted",
    "ObjectUpdated",
    "Outcome",
    "PeeringWritten",
    "Probe",
    "ReconcilerEnded",
    "RequestOptions",
    "ResponseQueue",
    "RunningCall",
    "SelectHandlers",
    "StatusServer",
    "StopDaemons",
    "StopReconciler",
    "StoreState",
    "SubHandlers",
    "TaskCoroutine",
    "Term",
    "UserStream",
    "WebhookRequest",
    "WebhookServer",
    "__version__",
    "build_certificate",
    "change_conditions",
    "current_address",
    "describe_certificate",
    "explain",
    "has_exec_plugin",
    "has_kubeconfig",
    "has_named_kubeconfig",
    "has_service_account",
    "inspect",
    "json_copy",
    "live_peers",
    "read_kubeconfig",
    "read_referenced_credentials",
    "read_service_account",
    "release_patch",
]

CompletableItem = Activation | CallDaemon | StopDaemons | CallReconciler
"""An item that is completed in batches."""

logger = logging.getLogger("kopf._core.reactor.running")


def _with_parents(names: list[str]) -> set[str]:
    parts = [name.split(".") for name in names]
    return {".".join(name[:length]) for name in parts for length in range(1, len(name) + 1)}


# The loggers that the engine writes to: the most verbose of them sets the threshold.
ENGINE_LOGGERS = [logging.getLogger(name) for name in LOGGERS]

# They and all their parents: comparing these levels is cheaper than asking for the effective ones.
LEVEL_SOURCES = [
    *(logging.getLogger(name) for name in _with_parents(LOGGERS)),
    logging.getLogger(),
]

TRACES = logging.getLogger("kopf.engine")
"""The logger of the engine's traces: several lines per request, so that it does not inherit its level."""

if TRACES.level == logging.NOTSET:
    TRACES.setLevel(logging.INFO)


class Bridge:
    """Polls the items of one engine, and completes them, both in batches and in one event loop."""

    def __init__(
        self,
        engine: Engine,
        request_handlers: Mapping[type[Any], Callable[[Any], None]],
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__()
        self._engine = engine
        self._request_handlers = request_handlers
        self._loop = loop if loop is not None else asyncio.get_running_loop()
        self._completions: list[CompletableItem] = []
        self.before_completion: Callable[[], None] = lambda: None
        """Called before completions are sent, e.g. to push settings that a handler has changed."""
        self._polling = False
        self._incomplete = 0  # number of items of the last batch whose completion may follow
        self._is_closed = False
        self._fileno: int | None = None
        self._levels: list[int] = []
        self._level: int | None = None
        self._is_tracing = False

    def open(self) -> None:
        """Start polling."""
        self._push_log_level()
        self._fileno = self._engine.fileno()
        self._loop.add_reader(self._fileno, self.poll)

    def close(self) -> None:
        """Stop polling; the completions that are ready are sent."""
        if self._fileno is not None:
            self._loop.remove_reader(self._fileno)
            self._fileno = None
        self._flush()
        self._is_closed = True
        if self._is_tracing:
            self._is_tracing = False
            self._engine.set_tracing(False)

    def poll_all(self) -> None:
        """Poll and handle all items that are ready, in as many batches as needed."""
        while self.poll():
            pass

    def poll(self) -> bool:
        """Poll and handle one batch of items; false if there were none."""
        request_handlers = self._request_handlers
        self._polling = True
        try:
            items = self._engine.poll()
            self._incomplete = len(items)
            for item in items:
                try:
                    request_handlers[type(item)](item)
                except ENDING_ERRORS:
                    raise
                except BaseException as e:
                    what = type(item).__name__
                    logger.exception(
                        f"Internal error while handling {what}; please report it: {message_of(e)}"
                    )
        finally:
            self._polling = False
            # Otherwise, the completions of this batch follow.
            if self._completions or not self._incomplete:
                self._flush()
        return bool(items)

    def complete(self, item: CompletableItem) -> None:
        """Complete the item, together with the others of its batch, or of this turn of the event loop."""
        self._completions.append(item)
        self._incomplete -= 1
        if self._polling:
            return
        # Without a turn in between if nothing more is expected. More flushes would wake the engine too often.
        if self._incomplete == 0:
            try:
                self._flush()
            except Exception as e:  # not of this item
                self._loop.call_exception_handler({"message": "Completing items has failed.", "exception": e})
        elif len(self._completions) == 1:
            self._loop.call_soon(self._flush_completions)

    def _flush_completions(self) -> None:
        if self._completions:
            self._flush()

    def _push_log_level(self) -> None:
        """Set the log level of the engine: lines below it are not formatted."""
        levels = [logger.level for logger in LEVEL_SOURCES]
        if levels != self._levels:
            self._levels = levels
            level = min(255, *(logger.getEffectiveLevel() for logger in ENGINE_LOGGERS))
            if level != self._level:
                self._level = level
                self._engine.set_log_level(level)
        is_tracing = TRACES.isEnabledFor(logging.DEBUG)
        if is_tracing != self._is_tracing:
            self._is_tracing = is_tracing
            self._engine.set_tracing(is_tracing)

    def _flush(self) -> None:
        if not self._is_closed:
            # A handler may have changed it, and the engine logs what follows from the outcome.
            self._push_log_level()
        if self._completions:
            completions, self._completions = self._completions, []
            try:
                self.before_completion()
            finally:
                self._engine.complete(completions)
