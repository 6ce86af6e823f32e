"""The engine of the operator, as Python drives it. Private: its names may change at any time."""

from collections.abc import Awaitable, Callable, ItemsView, Iterator, Mapping, ValuesView
from typing import Any, Literal, final

from kopf._objects.raw import RawEventType
from kopf._objects.resources import Resource

__version__: str

def plain(value: Any, /) -> Any:
    """Make a deep copy of a value as it is after JSON; `TypeError` or `ValueError` if it cannot be JSON."""

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
    def to_dict(self) -> dict[str, Any]: ...
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
class Settled:
    """What came of an attempt, and what to log about it (a level of 0: nothing)."""

    @property
    def level(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def traceback(self) -> bool: ...
    @property
    def final(self) -> bool: ...
    @property
    def failed(self) -> bool: ...
    @property
    def delay(self) -> float | None: ...
    @property
    def message(self) -> str | None: ...

@final
class Attempt:
    """One attempt of one handler, with its rules; times are in microseconds since the epoch."""

    def __new__(
        cls,
        *,
        label: str,
        errors: str,
        backoff: float,
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
    def precheck(self) -> Settled | None: ...
    def settle(
        self, kind: int, message: str = "", delay: float | None = None, shown: str | None = None
    ) -> Settled: ...

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
class Watch:
    """An `on.event` handler. If guarded, its filters are asked first."""

    handler: int
    guarded: bool
    attempt: Attempt

@final
class Match:
    """The filters of change handlers are asked."""

    handlers: list[int]

@final
class Pick:
    """The user's lifecycle chooses among handlers, given with the numbers of their attempts."""

    handlers: list[tuple[int, int]]

@final
class Handle:
    """A change handler."""

    handler: int
    attempt: Attempt

@final
class Script:
    """The work for one object."""

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
    def steps(self) -> tuple[Watch | Match | Pick | Handle, ...]: ...
    @property
    def change(self) -> Change | None: ...
    @property
    def preset(self) -> dict[str, Any] | None: ...
    def answer(
        self,
        steps: list[Settled | list[tuple[bool, bool]] | list[int] | None],
        patch: dict[str, Any] | None = None,
        fns: bool = False,
        error: str | None = None,
    ) -> None: ...

@final
class Transform:
    """Apply the functions of a cycle's patch to an object."""

    cycle: int
    object: Object
    def complete(self, object: dict[str, Any]) -> None: ...
    def fail(self, error: str) -> None: ...

@final
class Login:
    """Get credentials from the login handlers."""

    def complete(self, credentials: list[tuple[str, dict[str, Any]]] | None) -> None: ...
    def fail(self, error: str) -> None: ...

@final
class Select:
    """Ask the selectors that are functions."""

    handlers: list[int]
    resources: list[Resource]
    def complete(self, wanted: list[list[bool]]) -> None: ...
    def fail(self, error: str) -> None: ...

@final
class Close:
    """The cycle is over; if the functions of its patch are carried, they go to the object's next cycle."""

    cycle: int
    carry: bool

@final
class Cancel:
    """The operator does not wait for the cycle any longer: what runs of it is to be cancelled."""

    cycle: int

@final
class Forget:
    """The object is gone."""

    uid: str

@final
class Log:
    """A line for the log."""

    level: int
    logger: str
    text: str
    object: Object | None
    posted: bool
    exception_of: int | None

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
    ) -> Engine: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def finished(self) -> Awaitable[tuple[str, str] | None]: ...
    def fileno(self) -> int: ...
    def set_log_level(self, level: int) -> None: ...
    def poll(self) -> list[Script | Transform | Login | Select | Log | Close | Cancel | Forget]: ...
    def complete(self, scripts: list[Script]) -> None: ...

@final
class ApiServer:
    """An API server in the memory of this process; what is asked through it here is not in its journal."""

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
    def journal_length(self) -> int: ...
    def journal(self) -> list[tuple[float, str, str, str, str, str, bytes, int, str]]: ...
    def clear_journal(self) -> None: ...
    def inject(
        self, fault: str, number: float = 0.0, *, verb: str = "", plural: str = "", times: int | None = None
    ) -> None: ...
    def clear_faults(self) -> None: ...
    def cut_watches(self, plural: str = "") -> None: ...
    def compact(self) -> None: ...
    def shutdown(self) -> None: ...

@final
class Rehearsal:
    """What came back for the scripts that were put on the border; only in builds for tests."""

    def replies(self) -> list[str]: ...
    def transformed(self) -> str | None: ...

def rehearse(
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
) -> Rehearsal:
    """Put scripts on the border in the engine's place; only in builds for tests."""
