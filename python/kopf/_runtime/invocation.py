"""One attempt of one handler: the parts of its call that need Python, its errors, and its log lines.

A `HandlerCall` calls the handler by the methods of the `Invoker`. The engine's rules classify the errors.
They are asked here, so that the log has the real exception.
"""

from __future__ import annotations

import asyncio
import contextvars
import datetime
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kopf._intents import compatibility
from kopf._intents.causes import Cause
from kopf._intents.compatibility import Compatibility
from kopf._intents.errors import (
    ErrorsMode,
    HandlerChildrenRetry,
    HandlerRetriesError,
    HandlerTimeoutError,
    PermanentError,
    TemporaryError,
)
from kopf._intents.handlers import ActivityHandler, ChangingHandler, Handler, HandlerT, SpawningHandler
from kopf._intents.lifecycles import LifeCycleFn
from kopf._intents.serialization import whole_limit
from kopf._intents.settings import OperatorSettings
from kopf._objects.logging_types import Logger
from kopf._objects.typedefs import HandlerId
from kopf._runtime.api_argument import API, CONDITIONS, ApiProvider, required_arguments
from kopf._runtime.bridge import Attempt, CacheReader, Outcome, json_copy
from kopf._runtime.context import handler_var, retry_var
from kopf._runtime.errors import (
    add_hint,
    author_traceback,
    delay_of,
    error_observer_var,
    is_self_explanatory,
    message_of,
    repr_of,
    sendable,
    text_of,
)
from kopf._runtime.executor import ExecutorPool, call_limit
from kopf._runtime.framework_lines import log_framework_line
from kopf._runtime.functions import ensure_executed, is_async_fn
from kopf._runtime.loggers import FrameworkMessage

if TYPE_CHECKING:
    from kopf._runtime.leadership import Election

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class PreparedHandler:
    """A handler with what is known about its function."""

    __slots__ = (
        "fn",
        "handler",
        "is_async",
        "is_detached",
        "is_direct",
        "label",
        "names_api",
        "names_conditions",
    )

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.fn: Callable[..., Any] = handler.fn
        self.is_async = is_async_fn(handler.fn)
        self.is_detached = False  # nothing waits for its thread when the operator stops
        self.label = str(handler)
        required = required_arguments(handler.fn)
        self.names_api = API in required
        self.names_conditions = CONDITIONS in required and isinstance(
            handler, (ChangingHandler, SpawningHandler)
        )
        # It is called in the event loop, and needs no optional arguments.
        self.is_direct = self.is_async and not self.names_api and not self.names_conditions


class Invoker:
    """Calls handlers: asynchronous ones in the loop, synchronous ones in the executor of the settings.

    Each call is a `HandlerCall`, or the call of a reconciler.
    """

    def __init__(self, settings: OperatorSettings, pool: ExecutorPool) -> None:
        super().__init__()
        self._settings = settings
        self.pool = pool
        self.observe = error_observer_var.get()
        """Called with the exceptions of handlers, in tests."""
        self.api: ApiProvider | None = None
        """Makes the argument `api`."""
        self.caches: Mapping[str, Any] | None = None
        """The caches of the operator, by their ids."""
        self.children: Mapping[int, Sequence[CacheReader]] = {}
        """The caches of children, by the numbers of reconcilers."""
        self.election: Election | None = None
        """The operator's part in its leader election, if there is one."""
        self.running: dict[Hashable, tuple[Handler, Logger, float]] = {}
        """The running calls, by their attempts, or by the calls of reconcilers: the handler, the logger of
        the object, and the start (by the monotonic clock).
        """

    @staticmethod
    def enter_call(prepared: PreparedHandler, retry: int) -> None:
        """Set the context of a call: the handler, and the number of its earlier attempts."""
        handler_var.set(prepared.handler)
        retry_var.set(retry)

    def begin_call(self, prepared: PreparedHandler) -> Callable[..., Any]:
        """The function of a call that follows immediately, in the context of the call.

        Raises:
            LeadershipLost: The call must not begin.
        """
        if self.election is None:
            return prepared.fn
        return self.election.begin_call(prepared.handler, prepared.fn, is_async=prepared.is_async)

    # One call of Python by native code: each of them takes several hundred instructions.
    def begin_direct_call(
        self, prepared: PreparedHandler, attempt: Attempt, logger: Logger
    ) -> Callable[..., Any]:
        """Set the context of a call in the event loop, log its beginning, and list it; the function to call.

        Raises:
            LeadershipLost: The call must not begin.
        """
        handler_var.set(prepared.handler)
        retry_var.set(attempt.retry)
        self.log_beginning(attempt, logger)
        fn = self.begin_call(prepared)
        self.running[attempt] = (prepared.handler, logger, time.monotonic())
        return fn

    async def execute(
        self, prepared: PreparedHandler, attempt: Attempt, kwargs: dict[str, Any], logger: Logger
    ) -> Any:
        """Call a function in a thread, or one with optional arguments; return what it returns."""
        self.enter_call(prepared, attempt.retry)
        self.log_beginning(attempt, logger)
        finish: Callable[[], None] | None = None
        task = None if prepared.is_async else asyncio.current_task()
        try:
            if prepared.names_api and self.api is not None and API not in kwargs:
                kwargs[API] = await self.api.provide(kwargs, is_async=prepared.is_async)
            if prepared.names_conditions and CONDITIONS not in kwargs:
                finish = _add_conditions(kwargs)
            awaitable = self.start(prepared, attempt, kwargs, logger)
            # It may wait for days, and needs only what the function keeps of them.
            del kwargs
            return await awaitable
        finally:
            self.unlist(attempt, task)
            if finish is not None:
                finish()

    def start(
        self, prepared: PreparedHandler, key: Hashable, kwargs: dict[str, Any], logger: Logger
    ) -> Awaitable[Any]:
        """List a call among the running ones, and start it; the result is to be awaited at once.

        Raises:
            LeadershipLost: The call must not begin.
        """
        fn = self.begin_call(prepared)
        self.running[key] = (prepared.handler, logger, time.monotonic())
        if prepared.is_async:
            coroutine: Awaitable[Any] = fn(**kwargs)
            return coroutine
        if prepared.is_detached:
            return self.pool.call_detached(fn, kwargs)
        execution = self._settings.execution
        return self.pool.call(execution.executor, fn, kwargs, call_limit(execution))

    def unlist(self, key: Hashable, task: asyncio.Task[Any] | None) -> None:
        """Remove a call from the running ones, unless its function is left in a thread by this task: the exit
        of the process waits for it.
        """
        if not self.pool.has_abandoned(task):
            self.running.pop(key, None)

    @staticmethod
    async def await_any(awaitable: Awaitable[Any]) -> Any:
        """Await what has no method `__await__()`, such as the coroutine of a generator."""
        return await awaitable

    def settle_error(
        self,
        prepared: PreparedHandler,
        attempt: Attempt,
        error: BaseException,
        logger: Logger,
        *,
        is_logged: bool = False,
    ) -> Outcome:
        """The outcome of a call that has raised this error, which is logged, unless it is logged already."""
        outcome = classify_error(attempt, error, compatibility.of_settings(self._settings))
        if self.observe is not None:
            self.observe(prepared.handler, error)
        if outcome.traceback and not compatibility.of_settings(self._settings).logs_whole_tracebacks:
            add_hint(error)
            # With `--debug` or `--verbose`, also the frames of Kopf are of interest.
            shown = logger.isEnabledFor(logging.DEBUG)
            if not shown:
                error.with_traceback(author_traceback(error.__traceback__))
        if outcome.level and not is_logged:
            is_traced = outcome.traceback and not self._is_explained(prepared.handler, error, logger)
            logger.log(outcome.level, FrameworkMessage(outcome.text), exc_info=error if is_traced else None)
        return outcome

    @staticmethod
    def log_cancelled(attempt: Attempt, logger: Logger) -> None:
        """Log that the call is cancelled."""
        logger.warning(f"{attempt.label} is cancelled. Will escalate.")

    def enter_prevented_call(self, prepared: PreparedHandler, attempt: Attempt, logger: Logger) -> None:
        """Set the context of a call that a limit does not admit, and log its beginning."""
        self.enter_call(prepared, attempt.retry)
        self.log_beginning(attempt, logger)

    @staticmethod
    def log_beginning(attempt: Attempt, logger: Logger) -> None:
        """Log that the handler is called."""
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(f"{attempt.label} is invoked.")

    log_line = staticmethod(log_framework_line)
    """Log an outcome without an error."""

    @staticmethod
    def kept_error(outcome: Outcome, error: BaseException | None) -> BaseException:
        """The error of a call: that of the limit, if one is reached."""
        if error is not None and outcome.limit is None:
            return error
        limit = (HandlerTimeoutError if outcome.limit == "timeout" else HandlerRetriesError)(outcome.message)
        limit.__cause__ = error
        return limit

    @staticmethod
    def check_result(prepared: PreparedHandler, result: Any) -> None:
        """Raise `TypeError` if the function has returned a coroutine or a generator: nothing executes it."""
        ensure_executed(prepared.fn, result)

    @staticmethod
    def add_result(
        results: list[tuple[HandlerId, Any]], result: Any, prepared: PreparedHandler, logger: Logger
    ) -> None:
        """Add a copy of the result, unless it is not JSON."""
        copied = to_json_result(result, prepared, logger)
        if copied is not None:
            results.append((prepared.handler.id, copied))

    def _is_explained(self, handler: Handler, error: BaseException | None, logger: Logger) -> bool:
        """Whether it is an error of a built-in login handler whose message is sufficient."""
        if not isinstance(handler, ActivityHandler) or not handler._fallback or error is None:
            return False
        compatible = compatibility.of_settings(self._settings)
        is_full = logger.isEnabledFor(logging.DEBUG) or compatible.logs_whole_tracebacks
        return not is_full and is_self_explanatory(error)


def _add_conditions(kwargs: dict[str, Any]) -> Callable[[], None]:
    """Add the argument `conditions`. The result adds the changes of conditions to the patch."""
    # Operators without such handlers do not load it.
    from kopf._objects.conditions import Conditions
    from kopf._runtime.conditions_argument import write_conditions

    conditions = kwargs[CONDITIONS] = Conditions(kwargs["body"])
    patch = kwargs["patch"]
    return lambda: write_conditions(conditions, patch)


def select_handlers(
    lifecycle: LifeCycleFn, candidates: Mapping[int, HandlerT], **kwargs: Any
) -> list[tuple[int, HandlerT]]:
    """Let the lifecycle select from the handlers with these keys; each selected handler is listed once.

    A handler can be replaced by another one with the same id, such as by its copy with other options.
    Any other handler is a `ValueError`: nothing is known of its progress.
    """
    by_identity = {id(handler): key for key, handler in candidates.items()}
    by_id = {handler.id: key for key, handler in candidates.items()}
    chosen: dict[int, HandlerT] = {}
    for handler in lifecycle(list(candidates.values()), **kwargs):
        key = by_identity.get(id(handler), by_id.get(getattr(handler, "id", None)))  # type: ignore[arg-type]
        if key is None:
            name = getattr(lifecycle, "__qualname__", repr(lifecycle))
            ids = ", ".join(repr(str(known)) for known in by_id) or "none"
            raise ValueError(
                f"The lifecycle {name} has returned {handler}, which is not one of the handlers that it got"
                f" ({ids}). Return some of these handlers, or their copies with the same ids."
            )
        chosen.setdefault(key, handler)  # type: ignore[arg-type]
    return list(chosen.items())


def errors_mode(handler: Handler) -> str:
    """The name of the error mode of a handler."""
    return (handler.errors or ErrorsMode.TEMPORARY).name.lower()


class AttemptLimits(NamedTuple):
    """The options of a handler for its attempts, with the defaults."""

    label: str
    errors: str
    timeout: float | None
    retries: int | None
    backoff: float


def attempt_limits(handler: Handler, settings: OperatorSettings) -> AttemptLimits:
    """The limits of a handler's attempts."""
    backoff = handler.backoff if handler.backoff is not None else settings.execution.default_backoff
    retries = whole_limit(handler.retries)
    return AttemptLimits(str(handler), errors_mode(handler), handler.timeout, retries, backoff)


def attempt_for(attempt: Attempt, handler: Handler, declared: Handler, settings: OperatorSettings) -> Attempt:
    """The attempt of a handler that a lifecycle has returned instead of the declared one."""
    if handler is declared:
        return attempt
    limits = attempt_limits(handler, settings)._asdict()
    return Attempt(**limits, started=attempt.started, retry=attempt.retry, handler=attempt.handler)


def classify_error(attempt: Attempt, error: BaseException, compatible: Compatibility) -> Outcome:
    """Ask the engine's rules for the outcome of the error."""
    message = sendable(text_of(error))
    shown = sendable((message or repr_of(error)) if compatible.logs_bare_keys else message_of(error))
    if isinstance(error, HandlerChildrenRetry):
        return attempt.settle("subhandlers", message, error.delay, shown)
    if isinstance(error, TemporaryError):
        delay, remark = delay_of(error)
        return attempt.settle("temporary", message, delay, shown + sendable(remark))
    if isinstance(error, PermanentError):
        return attempt.settle("permanent", message, None, shown)
    return attempt.settle("unexpected", message, None, shown)


def to_json_result(result: Any, prepared: PreparedHandler, logger: Logger) -> Any:
    """The result as JSON, or None. The function has done its work, and is not called again for its result."""
    try:
        return json_copy(result)
    except (TypeError, ValueError, RecursionError) as e:
        kind = type(result)
        module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        text = (
            f"{prepared.label} has returned a result of type {module}{kind.__qualname__}, which is not stored"
            f" in the status of the object: {e}."
            f" Return nothing, or a dict of JSON types, e.g. model.model_dump(mode='json')."
        )
        logger.error(FrameworkMessage(text))
        return None


async def invoke(
    fn: Callable[..., Any],
    *,
    settings: OperatorSettings | None = None,
    kwargsrc: Cause | None = None,
    kwargs: Mapping[str, Any] | None = None,
    **_: Any,
) -> Any:
    """Call a function, sync or async, with the arguments of a cause and others; for tests of handlers."""
    arguments = dict(kwargs or {})
    if is_async_fn(fn):
        if kwargsrc is not None:
            arguments |= kwargsrc.async_kwargs
        return await fn(**arguments)
    if kwargsrc is not None:
        arguments |= kwargsrc.sync_kwargs
    executor = settings.execution.executor if settings is not None else None
    context = contextvars.copy_context()
    call = functools.partial(context.run, functools.partial(fn, **arguments))
    return await asyncio.get_running_loop().run_in_executor(executor, call)
