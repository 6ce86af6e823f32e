"""The engine of the operator, as Python drives it. Private: its names may change at any time."""

from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    ItemsView,
    Iterator,
    Mapping,
    ValuesView,
)
from logging import LoggerAdapter
from typing import Any, Literal, Self, final

from kopf._intents.lifecycles import HandlerState
from kopf._objects.resources import Resource
from kopf._objects.typedefs import HandlerId, RawEventType

__version__: str
CHILDREN_FINALIZER: str  # of owners whose children in other namespaces the operator deletes, by `kopf.apply`
LOGGERS: list[str]  # their levels decide which log lines the engine makes

def explain(
    object: str,
    *,
    settings: dict[str, Any],
    lifecycle: str,
    resource: dict[str, Any],
    handlers: list[dict[str, Any]],
    event: str,
    now: int,
    host: Any,
) -> dict[str, Any]:
    """The decision about an object, given as JSON text. The host has the methods of `_cli.filter_calls`."""

def inspect(
    objects: list[tuple[str, tuple[Any, Any, dict[str, Any]] | None]],
    *,
    persistence: dict[str, Any],
    resource: dict[str, Any],
    handlers: list[dict[str, Any]] | None = None,
    finalizers: list[str],
    compat: bool = False,
    now: int,
) -> list[dict[str, Any]]:
    """The states of objects, given as JSON texts; with what custom storages have, if there are any."""

def live_peers(status: Any, now: int) -> list[tuple[str, int, int]]:
    """The ids, priorities and times of the last keep-alives of the live operators of a peering object."""

def release_patch(
    object: str, finalizers: list[str], purged: dict[str, Any] | None = None
) -> list[dict[str, Any]] | None:
    """The JSON patch that removes the finalizers; with settings, also the annotations with the state."""
@final
class LazyAttribute:
    """An attribute of a cause, which is read from the source of the cause at the first access.

    `attribute` is its name in the source; `source` is the name of the attribute with the source.
    """

    def __new__(
        cls,
        attribute: str | None = None,
        *,
        source: str | None = None,
        convert: Callable[[Any], Any] | None = None,
    ) -> LazyAttribute: ...
    def __set_name__(self, owner: type, name: str, /) -> None: ...
    def __get__(self, cause: Any, owner: type | None = None, /) -> Any: ...

def json_copy(value: Any) -> Any:
    """Make a deep copy of a value as it is after JSON; `TypeError` or `ValueError` if it cannot be JSON."""

def json_patch(old: Any, new: Any) -> list[dict[str, Any]]: ...
def restore_essence(stored: Any, present: Any) -> Any: ...
def match_namespace(name: str, globs: str) -> bool: ...
def is_exact_namespace(globs: str) -> bool: ...
def unmatched_namespaces(globs: list[str], names: set[str]) -> list[str]: ...
def select_resources(selector: dict[str, Any], resources: list[dict[str, Any]]) -> list[int]: ...
@final
class Object(Mapping[str, Any]):
    """A read-only mapping over an object of the engine; stanzas are converted at their first touch."""

    @staticmethod
    def decode(text: str) -> Object: ...
    def __getitem__(self, key: str, /) -> Any: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...
    def keys(self) -> tuple[str, ...]: ...  # type: ignore[override]
    def values(self) -> ValuesView[Any]: ...
    def items(self) -> ItemsView[str, Any]: ...
    def get(self, key: object, default: Any = None, /) -> Any: ...
    def to_dict(self) -> dict[str, Any]: ...
    def identity(self) -> tuple[str | None, str | None, str | None]:
        """The uid, the name, and the namespace."""

    def release_values(self) -> None: ...
    @property
    def text(self) -> str: ...
    @property
    def name(self) -> str | None: ...
    @property
    def namespace(self) -> str | None: ...
    @property
    def uid(self) -> str | None: ...
    @property
    def api_version(self) -> str | None: ...
    @property
    def kind(self) -> str | None: ...

@final
class Outcome:
    """What came of an attempt, and what to log about it (a level of 0: nothing)."""

    @property
    def level(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def traceback(self) -> bool: ...
    @property
    def limit(self) -> Literal["timeout", "retries"] | None:
        """The limit that ended the attempts, if one did."""
    @property
    def final(self) -> bool: ...
    @property
    def failed(self) -> bool: ...
    @property
    def delay(self) -> float | None: ...
    @property
    def message(self) -> str | None: ...
    def with_subrefs(self, subrefs: list[str]) -> Outcome: ...
    def reconcile_result(self, is_timed_out: bool) -> tuple[str, float | None]: ...

@final
class Attempt:
    """One attempt of one handler, with its rules; times are in microseconds since the epoch."""

    def __new__(
        cls,
        *,
        label: str,
        errors: str,
        backoff: float | None,
        started: int,
        retry: int = 0,
        timeout: float | None = None,
        retries: int | None = None,
        handler: int = 0,
    ) -> Attempt: ...
    @property
    def handler(self) -> int: ...
    @property
    def label(self) -> str: ...
    @property
    def retry(self) -> int: ...
    @property
    def started(self) -> int: ...
    @staticmethod
    def now() -> int: ...
    def add_arguments(self, arguments: dict[str, Any], param: Any) -> None:
        """Add `param`, `retry`, `started` and `runtime`, except those whose names indices have."""
    def settle(self, kind: str, message: str, delay: float | None, shown: str) -> Outcome:
        """The outcome after an error, which is `temporary`, `permanent`, `subhandlers`, or `unexpected`."""

@final
class HandlerCall(Coroutine[Any, Any, HandlerCall]):
    """One call of one handler, if its limits allow: a coroutine, which is awaited, or is that of a task.

    It logs the outcome, and returns itself. It adds the arguments of the attempt to `kwargs`, and a copy of
    the result to `results`, if that is JSON. `after_call` follows the function as a part of the handler.
    `ended` is called at the end, also if the call is cancelled before it begins.
    """

    def __new__(
        cls,
        invoker: Any,
        prepared: Any,
        attempt: Attempt,
        kwargs: dict[str, Any],
        logger: Any,
        results: list[Any] | None = None,
        after_call: Callable[[], Any] | None = None,
        keep_error: bool = False,
        ended: Callable[[HandlerCall], None] | None = None,
    ) -> HandlerCall: ...
    @property
    def outcome(self) -> Outcome:
        """The outcome; it raises `RuntimeError` if there is none."""

    @property
    def outcome_or_none(self) -> Outcome | None:
        """The outcome; `None` before the end, and if the call was cancelled."""

    @property
    def result(self) -> Any:
        """The returned value."""

    @property
    def error(self) -> BaseException | None:
        """The error, if it is kept: that of the limit, if one is reached."""

    def __await__(self) -> Generator[Any, None, HandlerCall]: ...
    def __iter__(self) -> HandlerCall: ...
    def __next__(self) -> Any: ...
    def send(self, value: Any) -> Any: ...
    def throw(self, kind: Any, value: Any = None, traceback: Any = None, /) -> Any: ...
    def close(self) -> None: ...
    @property
    def cr_await(self) -> Any: ...
    @property
    def cr_frame(self) -> Any: ...
    @property
    def cr_code(self) -> Any: ...
    @property
    def cr_origin(self) -> Any: ...
    @property
    def cr_running(self) -> bool: ...
    @property
    def cr_suspended(self) -> bool: ...

@final
class TaskCoroutine(Coroutine[Any, Any, None]):
    """A coroutine that calls `unbegun` if its task is cancelled before its first step."""

    def __new__(cls, coroutine: Coroutine[Any, Any, object], unbegun: Callable[[], object]) -> Self: ...
    def __await__(self) -> Generator[Any, None, None]: ...
    def __iter__(self) -> TaskCoroutine: ...
    def __next__(self) -> Any: ...
    def send(self, value: Any) -> Any: ...
    def throw(self, kind: Any, value: Any = None, traceback: Any = None, /) -> Any: ...
    def close(self) -> None: ...
    @property
    def cr_await(self) -> Any: ...
    @property
    def cr_frame(self) -> Any: ...
    @property
    def cr_code(self) -> Any: ...
    @property
    def cr_origin(self) -> Any: ...
    @property
    def cr_running(self) -> bool: ...
    @property
    def cr_suspended(self) -> bool: ...

@final
class SubHandlers:
    """The progress of sub-handlers by their positions: id, label, error mode, timeout, retries, backoff."""

    def __new__(
        cls,
        reason: str,
        records: dict[str, Any],
        children: list[tuple[str, str, str, float | None, int | None, float]],
    ) -> SubHandlers: ...
    @property
    def malformed(self) -> list[tuple[str, str]]: ...
    def due(self) -> list[tuple[int, int]]: ...
    def states(self) -> dict[str, HandlerState]: ...
    def attempt(self, index: int) -> Attempt: ...
    def record_outcome(self, outcome: Outcome) -> None: ...
    def changed(self) -> list[tuple[HandlerId, Any]]: ...
    @property
    def done(self) -> bool: ...
    def delay(self) -> float | None: ...

DiffTuple = tuple[str, tuple[str, ...], Any, Any]

@final
class Change:
    """A change of one object."""

    @property
    def reason(self) -> str: ...
    @property
    def initial(self) -> bool: ...
    @property
    def old(self) -> Any: ...
    @property
    def new(self) -> Any: ...
    @property
    def diff(self) -> list[DiffTuple]: ...
    def reduced(self, field: tuple[str, ...]) -> tuple[Any, Any, list[DiffTuple]]: ...

@final
class IndexerCall:
    """One index function to call. If guarded, its filters are evaluated first."""

    handler: int
    guarded: bool
    attempt: Attempt

@final
class CallIndexers:
    """Call index functions; the excluded handlers lose the object from their indices without a call."""

    calls: tuple[IndexerCall, ...]
    excluded: list[int]

@final
class CallEventHandler:
    """Call an event handler. If guarded, its filters are evaluated first."""

    handler: int
    guarded: bool
    attempt: Attempt

@final
class FilterDaemons:
    """Evaluate the filters of daemons and timers."""

    handlers: list[int]

@final
class FilterHandlers:
    """Evaluate the filters of change handlers."""

    handlers: list[int]

@final
class SelectHandlers:
    """Let the user's lifecycle select handlers, with the numbers of their attempts; and the states of all."""

    handlers: list[tuple[int, int]]
    states: dict[str, HandlerState]

@final
class CallChangeHandler:
    """Call a change handler."""

    handler: int
    attempt: Attempt

@final
class FetchState:
    """Fetch the progress and the essences from the user's storages."""

    ids: list[HandlerId]
    extra_fields: list[tuple[str, ...]]

@final
class StoreState:
    """Store the progress and the essence in the user's storages; a record of None is removed."""

    records: list[tuple[HandlerId, Any]]
    essence: bool
    written: bool

@final
class Activation:
    """The commands for one object, and their completion."""

    @property
    def cycle(self) -> int: ...
    @property
    def uid(self) -> str: ...
    @property
    def event(self) -> RawEventType: ...
    @property
    def object(self) -> Object: ...
    @property
    def resource(self) -> Resource: ...
    @property
    def commands(
        self,
    ) -> tuple[
        CallIndexers
        | CallEventHandler
        | FilterDaemons
        | FilterHandlers
        | SelectHandlers
        | CallChangeHandler
        | FetchState
        | StoreState,
        ...,
    ]: ...
    @property
    def change(self) -> Change | None: ...
    @property
    def initial_patch(self) -> dict[str, Any] | None: ...
    @property
    def is_final(self) -> bool: ...
    @property
    def remaining_fns(self) -> bool: ...
    @property
    def task_name(self) -> str:
        """The first handler and the object."""
    @property
    def handling(self) -> tuple[str, str] | None: ...  # the id of the cause, the reason
    def reply(
        self,
        results: list[
            Outcome
            | list[tuple[bool, bool]]
            | list[int]
            | tuple[Any, Any, dict[str, Any]]
            | dict[int, Outcome | None]
            | None
        ],
        patch: dict[str, Any] | None = None,
        fns: bool = False,
        error: str | None = None,
        closed: bool = False,
    ) -> None: ...

@final
class CallDaemon:
    """One call of a daemon or a timer."""

    @property
    def run(self) -> int: ...
    @property
    def handler(self) -> int: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource(self) -> Resource: ...
    @property
    def attempt(self) -> Attempt: ...
    @property
    def keep_fns(self) -> bool: ...
    def take_object(self) -> Object: ...
    def release_object(self) -> None: ...
    def reply(
        self, outcome: Outcome | None = None, patch: dict[str, Any] | None = None, fns: bool = False
    ) -> None: ...

@final
class CallReconciler:
    """One call of a reconciler."""

    @property
    def run(self) -> int: ...
    @property
    def handler(self) -> int: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource(self) -> Resource: ...
    @property
    def object(self) -> Object: ...
    @property
    def deleting(self) -> bool: ...
    @property
    def retry(self) -> int: ...
    @property
    def started(self) -> int: ...
    @property
    def runtime(self) -> float: ...
    def reply(
        self,
        result: str,
        delay: float | None = None,
        patch: dict[str, Any] | None = None,
        fns: bool = False,
        conditions: tuple[list[tuple[str, tuple[bool | None, str, str] | None]], int | None] | None = None,
    ) -> None: ...

@final
class StopReconciler:
    """Set the stop flag of a call, and maybe cancel it."""

    run: int
    reasons: int
    cancel: str | None

@final
class ReconcilerEnded:
    """A call has ended with its writes."""

    run: int

@final
class InspectObject:
    """Call the functions of a reconciler's declaration."""

    @property
    def handler(self) -> int: ...
    @property
    def related(self) -> int | None: ...
    @property
    def resource(self) -> Resource: ...
    @property
    def object(self) -> Object: ...
    def complete(
        self,
        matches: bool | None,
        functions: list[int | None],
        mapped: list[tuple[str | None, str, str | None]] | None = None,
        *,
        everything: bool = False,
    ) -> None: ...

def change_conditions(
    conditions: list[Any],
    changes: list[tuple[str, tuple[bool | None, str, str] | None]],
    generation: int | None,
) -> list[Any]: ...
@final
class GetInitialDelay:
    """Ask a daemon or a timer for its initial delay."""

    run: int
    handler: int
    uid: str
    resource: Resource
    object: Object
    def complete(self, delay: float | None) -> None: ...

@final
class StopDaemons:
    """Set the stop flags of daemons and timers with these reasons, and cancel some of them."""

    signals: list[tuple[int, int, bool]]

@final
class ObjectUpdated:
    """Replace the live body of these daemons and timers."""

    runs: list[int]
    object: Object

@final
class DaemonEnded:
    """A daemon or a timer has ended."""

    run: int
    reasons: int

@final
class ApplyPatchFns:
    """Apply the functions of a cycle's patch to an object."""

    cycle: int
    object: Object
    def complete(self, object: dict[str, Any]) -> None: ...
    def fail(self, error: str) -> None: ...

@final
class Login:
    """Get credentials from the login handlers."""

    is_renewal: bool
    def complete(self, credentials: list[tuple[str, dict[str, Any]]] | None) -> None: ...
    def fail(self, error: str) -> None: ...

@final
class MatchResources:
    """Evaluate the selectors that are functions."""

    handlers: list[int]
    resources: list[Resource]
    def complete(self, matches: list[list[bool]]) -> None: ...
    def fail(self, error: str) -> None: ...

@final
class AdmissionReview:
    """Call the handlers of an admission review."""

    @property
    def handlers(self) -> list[tuple[int, bool]]: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource(self) -> Resource: ...
    @property
    def object(self) -> Object: ...
    @property
    def old(self) -> Object | None: ...
    @property
    def new(self) -> Object | None: ...
    @property
    def userinfo(self) -> Any: ...
    @property
    def headers(self) -> Any: ...
    @property
    def sslpeer(self) -> Any: ...
    @property
    def operation(self) -> Any: ...
    @property
    def subresource(self) -> str | None: ...
    @property
    def dryrun(self) -> bool: ...
    def respond(
        self,
        denials: list[tuple[int, str, int | None]],
        warnings: list[str],
        patch: dict[str, Any] | None = None,
        changes: list[dict[str, Any]] | None = None,
    ) -> Any:
        """The review with the response. Errors: 0 for admission, 1 permanent, 2 temporary, 3 other."""

    def fail(self, reason: str) -> None: ...

@final
class WebhookRequest:
    """A request to a webhook server."""

    webhook: str
    headers: dict[str, str]
    sslpeer: dict[str, Any] | None
    body: bytes
    def respond(self, response: Any) -> None: ...
    def reject(self, status: int, reason: str) -> None: ...

@final
class WebhookServer:
    """A server of webhooks; it listens as soon as it is made."""

    def __new__(
        cls,
        *,
        engine: Engine | None = None,
        addr: str | None = None,
        port: int = 0,
        path: str = "",
        listening: bool = True,
        insecure: bool = False,
        certfile: str | None = None,
        pkeyfile: str | None = None,
        password: str | None = None,
        cafile: str | None = None,
        cadata: bytes | None = None,
        hostnames: list[str] = ...,
        demand: str = "none",
        verify_cafile: str | None = None,
        verify_capath: str | None = None,
        verify_cadata: bytes | None = None,
    ) -> WebhookServer: ...
    @property
    def port(self) -> int: ...
    def ca_bundle(self) -> bytes | None: ...
    def reload(self) -> bool: ...
    def report_certificate(self, chain: bytes) -> None: ...
    def connect(self, sslpeer: Any = None) -> int: ...
    def fileno(self) -> int: ...
    def poll(self) -> list[WebhookRequest]: ...
    def stop(self) -> None: ...
    def join(self) -> None: ...

def build_certificate(hostnames: list[str], password: str | None = None) -> tuple[bytes, bytes]:
    """Make a self-signed certificate and its private key, both in PEM."""

def describe_certificate(der: bytes) -> dict[str, Any] | None:
    """Describe a certificate as `getpeercert()` of `ssl` does; None if it is not one."""
@final
class Probe:
    """Call the probes."""

    def complete(self, results: str) -> None: ...
    def fail(self) -> None: ...

@final
class MatchNamespaces:
    """Evaluate the namespace patterns that are regular expressions."""

    names: list[str]
    def complete(self, served: list[bool]) -> None: ...

@final
class CycleClosed:
    """A cycle has ended; if its patch functions are kept, the object's next cycle gets them."""

    cycle: int
    keep_fns: bool

@final
class CancelCycle:
    """Cancel the handlers of a cycle, which is not completed then."""

    cycle: int

    def complete(self, handler: int | None = None) -> None:
        """Reply that the handlers have ended, and whose call was cancelled."""

@final
class ObjectDeleted:
    """The object is deleted."""

    uid: str

@final
class PeeringWritten:
    """The command has written its record to this peering object, or removed it."""

    resource: Resource
    namespace: str | None
    name: str

@final
class EngineStopped:
    """The engine has ended: as it was asked to, or by a failure (its kind, its message, an explanation)."""

    failure: tuple[str, str, str | None] | None

@final
class LineFormat:
    """A format of log lines without log records: a %-format, or JSON with a key. None if it needs records."""
    @staticmethod
    def parse(format: str, is_prefixed: bool) -> LineFormat | None: ...
    @staticmethod
    def json(key: str, is_prefixed: bool) -> LineFormat | None: ...

@final
class LineWriter:
    """Writes lines to Kopf's log handler. Classes are given with the methods that log records pass."""
    def __new__(
        cls, logger: Any, classes: Any, handler: type, poster: type, call_fields: Any
    ) -> LineWriter: ...
    def write(self, adapter: LoggerAdapter[Any], source: Mapping[str, Any], level: int, text: str, /) -> bool:
        """Write a line whose level is enabled; false if it needs a log record, and is not written."""

@final
class Log:
    """A log line."""

    level: int
    logger: str
    text: str
    object: Object | None
    posted: bool
    exception_of: int | None
    handling: tuple[str, str] | None

Item = (
    CallDaemon
    | GetInitialDelay
    | StopDaemons
    | ObjectUpdated
    | DaemonEnded
    | Activation
    | ApplyPatchFns
    | Login
    | AdmissionReview
    | MatchResources
    | Probe
    | MatchNamespaces
    | Log
    | CycleClosed
    | CancelCycle
    | ObjectDeleted
    | PeeringWritten
    | EngineStopped
)

@final
class Election:
    """The part of an operator in a leader election."""

    def admits_call(self) -> bool:
        """Whether the call of a handler may begin; if not, the rejected call is counted."""

    def term(self) -> Term | None:
        """The present term; None if this replica does not lead."""

@final
class Term:
    """One term of this replica."""

    @property
    def number(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def identity(self) -> str: ...
    def expires_in(self) -> float | None:
        """The seconds until the term ends if the lease is not renewed; None if it has ended."""

@final
class StatusServer:
    """The status server of an operator; it listens from its creation."""

    def __new__(
        cls, *, liveness: tuple[str, int, str] | None = None, address: tuple[str, int] | None = None
    ) -> StatusServer: ...
    def serve_status_at(self, host: str, port: int) -> None:
        """Serve the status endpoints at this address, and no longer at that of the probes."""

    def stop(self) -> None: ...

@final
class Engine:
    """The engine of one operator."""

    def __new__(
        cls,
        *,
        handlers: list[dict[str, Any]],
        settings: dict[str, Any],
        lifecycle: str,
        namespaces: list[str],
        agent: str,
        make_resource: Callable[[dict[str, Any]], Resource],
        identity: str = "",
        status: StatusServer | None = None,
        probes: bool = False,
        credentials: list[tuple[str, dict[str, Any]]] | None = None,
        command: Literal["freeze", "resume"] | None = None,
        foreign: bool = False,
    ) -> Engine: ...
    def start(self) -> None: ...
    def configure(self, settings: dict[str, Any]) -> None: ...
    def client(self) -> ApiClient:
        """The API client with the engine's connections; it ends with the engine."""

    def cache(self, number: int) -> CacheReader:
        """The cache with this number among the handlers, after the start."""

    def election(self) -> Election | None:
        """The part in a leader election; None without it, and before the start."""

    def heartbeat(
        self, calls: list[tuple[str, float]] = ..., threads: tuple[int, int, int | None] = ...
    ) -> None:
        """The event loop runs, with these calls (the id of the handler, and the age in seconds).

        `threads` are the synchronous functions that run, those that wait for a thread, and their limit.
        """

    def stop(self) -> None: ...
    def fileno(self) -> int: ...
    def pending(self) -> int: ...
    def awaited_streams(self) -> list[str]: ...
    def wake_for_everything(self) -> None: ...
    def set_log_level(self, level: int) -> None: ...
    def set_tracing(self, is_enabled: bool) -> None: ...
    def review(
        self, request: Any, *, webhook: str | None, reason: str | None, headers: Any, sslpeer: Any
    ) -> AdmissionReview | tuple[str, str]: ...
    def publish_webhook(self, client: dict[str, Any]) -> None: ...
    def server_info(self) -> tuple[str, str]:
        """The address and the version of the API server; it blocks the thread."""

    def poll(self) -> list[Item]: ...
    def complete(self, completed: list[Activation | CallDaemon | StopDaemons | CallReconciler]) -> None: ...
    def trigger(
        self,
        handler: int | None = None,
        primary: tuple[str | None, str, str | None] | None = None,
        kind: dict[str, Any] | None = None,
    ) -> bool: ...
    def post(self, events: list[tuple[dict[str, Any], str, str, str, list[float]]]) -> None: ...

@final
class ApiRequest:
    """A request of the API client."""

    def __new__(
        cls,
        verb: str,
        kind: str,
        name: str | None = None,
        namespace: str | None = None,
        *,
        body: Any = None,
        body_namespace: str | None = None,
        subresource: str | None = None,
        query: list[tuple[str, str]] = ...,
        guarded: bool = False,
        metadata_only: bool = False,
    ) -> ApiRequest: ...
    @staticmethod
    def raw(
        method: str,
        path: str,
        *,
        body: Any = None,
        content_type: str | None = None,
        accept: str | None = None,
    ) -> ApiRequest: ...
    @staticmethod
    def resolve(kind: str) -> ApiRequest: ...
    @staticmethod
    def resources() -> ApiRequest: ...
    @staticmethod
    def access(
        verb: str,
        kind: str,
        name: str | None = None,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> ApiRequest: ...
    @staticmethod
    def apply_children(owner: Any, children: list[Any], options: dict[str, Any]) -> ApiRequest: ...

@final
class AppliedChildren:
    """The result of applying children. A reference is its group, kind, name, namespace, uid."""

    def references(self) -> list[tuple[str, list[tuple[str, str, str, str | None, str | None]]]]: ...
    def objects(self) -> list[tuple[str, str | None, str, Object]]:
        """The applied objects with their kinds, namespaces and names."""

    def failures(self) -> list[tuple[str, CallFailure]]:
        """The objects, and why they could not be applied."""

@final
class RequestOptions:
    """The options of requests; without a namespace, it is that of the credentials, or is not known at all.
    `run` is the call of a reconciler that makes the requests.
    """

    def __new__(
        cls,
        *,
        namespace: str | None = None,
        namespace_known: bool = True,
        dry_run: bool = False,
        manager: str | None = None,
        validation: str | None = None,
        timeout: float | None = None,
        retries: bool = True,
        headers: list[tuple[str, str]] = ...,
        run: int | None = None,
    ) -> RequestOptions: ...

@final
class ApiResponse:
    """A response."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> dict[str, str]: ...
    @property
    def type_meta(self) -> tuple[str, str] | None: ...
    @property
    def content(self) -> bytes: ...
    def json(self) -> Any: ...

@final
class CallFailure:
    """A failure of a call; the kind is the name of the exception."""

    @property
    def kind(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def code(self) -> int: ...
    @property
    def reason(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def details(self) -> Any: ...
    @property
    def causes(self) -> list[tuple[str, str, str]]: ...
    @property
    def managers(self) -> list[tuple[str, str, str]]: ...
    @property
    def retry_after(self) -> float | None: ...
    @property
    def uncertain(self) -> bool: ...
    @property
    def existing(self) -> Any: ...

@final
class ResponseQueue:
    """The outcomes of calls for one event loop, with their tickets."""

    def __new__(cls) -> ResponseQueue: ...
    def fileno(self) -> int: ...
    def take(self) -> list[tuple[int, Any]]: ...

@final
class RunningCall:
    """A call whose outcome goes to a queue."""

    def cancel(self) -> None: ...

@final
class UserStream:
    """A watch, or a log that is read."""

    @property
    def is_finished(self) -> bool: ...
    def wait(self) -> None:
        """Block the thread until there are items."""

    def start_wait(self, queue: ResponseQueue, ticket: int) -> RunningCall: ...
    def take(self) -> list[Any]:
        """Changes (type, object, old), lines; `None` at the end of a listing; the final failure."""

    def close(self) -> None: ...

@final
class CacheReader:
    """A cache of a running operator. Reading raises `LookupError` before the cache is ready."""

    def get(self, name: str, namespace: str | None) -> Object | None: ...
    def get_owned(self, name: str, namespace: str | None, owner: str) -> Object | None:
        """The object of this name, if it has the owner with this uid."""

    def named(self, name: str) -> list[Object]:
        """The objects of this name in all namespaces."""

    def select(
        self,
        namespace: str | None,
        labels: str | None,
        fields: list[tuple[list[str], Any]],
        owner: str | None,
        by: list[tuple[str, Any]],
    ) -> list[Object]: ...
    def keys(self, by: str) -> list[Any]: ...
    def __len__(self) -> int: ...
    @property
    def namespaced(self) -> bool | None: ...
    @property
    def is_ready(self) -> bool: ...
    @property
    def stale_for(self) -> float: ...
    @property
    def memory_size(self) -> int: ...
    def wait_ready(self, timeout: float | None) -> bool:
        """Block the thread until the cache is filled; false if the time is over."""

    def start_wait_ready(self, timeout: float | None, queue: ResponseQueue, ticket: int) -> RunningCall: ...
    def changes(self, initial: bool) -> CacheChanges: ...

@final
class CacheChanges:
    """The changes of a cache."""

    def start_wait(self, queue: ResponseQueue, ticket: int) -> RunningCall: ...
    def take(
        self,
    ) -> list[tuple[Literal["ADDED", "MODIFIED", "DELETED"] | None, Object, Object | None]] | None:
        """Take the changes that are ready; None if the operator has ended."""

    def close(self) -> None: ...

@final
class ComputeKeys:
    """Call the functions that compute the keys of an object in a cache."""

    @property
    def cache(self) -> int: ...
    @property
    def resource(self) -> Resource: ...
    @property
    def object(self) -> Object: ...
    def complete(self, computed: list[tuple[str, list[Any]]]) -> None: ...

@final
class ApiClient:
    """The API client."""

    @staticmethod
    def connect(
        *,
        agent: str,
        settings: dict[str, Any],
        credentials: list[tuple[str, dict[str, Any]]] | None = None,
        kubeconfig: str | None = None,
        context: str | None = None,
    ) -> ApiClient: ...
    def execute(self, request: ApiRequest, options: RequestOptions) -> Any:
        """Block the thread until the outcome."""

    def start(
        self, request: ApiRequest, options: RequestOptions, queue: ResponseQueue, ticket: int
    ) -> RunningCall: ...
    def watch(
        self, request: ApiRequest, options: RequestOptions, *, initial: bool, timeout: float | None = None
    ) -> UserStream | CallFailure: ...
    def logs(
        self, request: ApiRequest, options: RequestOptions, *, timestamps: bool
    ) -> UserStream | CallFailure: ...
    def take_logs(self) -> list[Log]: ...
    def close(self) -> None: ...

def has_kubeconfig() -> bool: ...
def has_named_kubeconfig() -> bool: ...
def current_address() -> tuple[str, str, str] | None:
    """The name of the current context of the kubeconfigs, its file, and the address of its cluster."""

def has_service_account() -> bool: ...
def read_kubeconfig() -> dict[str, Any] | tuple[str, str]:
    """The fields of `ConnectionInfo`; or the kind (corrupted, missing, unusable) and text of an error."""

def has_exec_plugin() -> bool:
    """Whether the credentials of the kubeconfigs' current user come from an exec plugin."""

def read_referenced_credentials() -> dict[str, Any] | str:
    """The fields of `ConnectionInfo` from the exec plugin or token file; or the plugin's error."""

def read_service_account() -> dict[str, Any] | None: ...
@final
class ApiServer:
    """The embedded API server; the requests of its methods are not in the request log."""

    def __new__(
        cls,
        *,
        port: int = 0,
        tls: bool = True,
        token: str | None = None,
        controllers: bool = False,
        access: bool = False,
    ) -> ApiServer: ...
    @property
    def url(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def token(self) -> str: ...
    @property
    def ca(self) -> str | None: ...
    @property
    def kubeconfig(self) -> str: ...
    @property
    def resource_version(self) -> int: ...
    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]: ...
    def call_all(self, requests: list[tuple[str, str, Any]]) -> None: ...
    @staticmethod
    def launch(
        *,
        port: int = 0,
        tls: bool = True,
        token: str | None = None,
        controllers: bool = False,
        access: bool = False,
    ) -> Awaitable[ApiServer]: ...
    def wait_for_request(self, after: int) -> Awaitable[int]: ...
    def request_count(self) -> int: ...
    def request_log(
        self, after: int = 0
    ) -> tuple[int, list[tuple[float, str, str, str, str, str, bytes, int, str, str]]]: ...
    def clear_request_log(self) -> None: ...
    def inject(
        self,
        fault: str,
        number: float = 0.0,
        *,
        verb: str = "",
        plural: str = "",
        client: str = "",
        times: int | None = None,
        after: int = 0,
    ) -> None: ...
    def cut_off(self) -> None: ...
    @property
    def is_cut_off(self) -> bool: ...
    def clear_faults(self) -> None: ...
    def append_log(self, namespace: str, pod: str, container: str, lines: list[str]) -> None: ...
    def cut_watches(self, plural: str = "") -> None: ...
    def compact(self) -> None: ...
    def shutdown(self) -> None: ...

@final
class InjectedWork:
    """Injected work items, with their replies; only in builds for tests."""

    def replies(self) -> list[dict[str, Any]]: ...
    def transformed(self) -> str | None: ...
    def cancelled(self) -> int | None: ...

def inject(
    engine: Engine,
    object: str,
    steps: list[tuple[str, list[int]]],
    *,
    cycle: int = 1,
    count: int = 1,
    reason: Literal["create", "update", "delete", "resume"] | None = None,
    old: Any = None,
    new: Any = None,
    retries: int | None = None,
    retry: int = 0,
    together: bool = False,
    remaining_fns: bool = False,
) -> InjectedWork:
    """Inject work items as if they came from the engine; only in builds for tests."""

def inject_panics(step: str, *, name: str | None = None, times: int = 1) -> None:
    """Make tasks of the engine panic at their next steps; only in builds for tests.

    The steps: `watch`, `handle`, `index`, `transform`, `run`, `forget`, `webhook`.
    """

def inject_review(engine: Engine, resource: dict[str, Any]) -> None:
    """Register a resource for admission reviews as if it were discovered; only in builds for tests."""
@final
class VirtualTime:
    """The native part of virtual time; times are in microseconds since the epoch."""

    def __new__(cls) -> VirtualTime: ...
    @property
    def now(self) -> int: ...
    @property
    def next(self) -> int | None: ...
    def freeze(self) -> None: ...
    def thaw(self) -> None: ...
    def reset(self) -> None: ...
    def advance_to(self, limit: int) -> bool: ...
    @staticmethod
    def turns() -> int: ...
    def activity(self) -> tuple[int, int]: ...
    def observe(self) -> tuple[list[str], list[str], list[str]]: ...
    @staticmethod
    def runnable_threads() -> int: ...
