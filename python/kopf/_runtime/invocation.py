"""Attempts to call a handler. It owns the call and its logs; it must not know what the handler is for.

What an exception means, the engine's rules say; they are asked here, so that the real exception is logged.
"""

from __future__ import annotations

import asyncio
import contextvars
import datetime
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from kopf._intents.errors import (
    HandlerChildrenRetry,
    HandlerRetriesError,
    HandlerTimeoutError,
    PermanentError,
    TemporaryError,
)
from kopf._intents.handlers import Handler
from kopf._intents.seeing import seen
from kopf._intents.settings import OperatorSettings
from kopf._objects.logs import Logger
from kopf._runtime.bridge import Attempt, Raised, Settled, plain
from kopf._runtime.context import handler_var
from kopf._runtime.lines import say
from kopf._runtime.threads import Threads

OF_ATTEMPTS = frozenset({"param", "retry", "started", "runtime"})
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Attempted(NamedTuple):
    """What came of an attempt: the verdict, the result, and what was raised (or would be, at a limit)."""

    settled: Settled
    result: Any = None
    error: BaseException | None = None


class Callee:
    """A handler that is ready to be called."""

    __slots__ = ("fn", "handler", "is_async", "of_attempts", "wanted")

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.fn: Callable[..., Any] = handler.fn
        self.is_async = is_async_fn(handler.fn)
        self.wanted = seen(handler.fn)
        """The names of the arguments that the function can see; None if that can be all of them."""
        self.of_attempts = self.wanted is None or not self.wanted.isdisjoint(OF_ATTEMPTS)
        """Whether those that tell of the attempt are among them."""


class Invoker:
    """Calls handlers: asynchronous ones in the loop, synchronous ones in the executor of the settings."""

    def __init__(self, settings: OperatorSettings, threads: Threads) -> None:
        super().__init__()
        self._settings = settings
        self._threads = threads
        self.tasks: set[asyncio.Task[Any]] = set()
        """What runs aside of those who wait for it."""

    async def in_task(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run the coroutine in a task of its own, in a copy of the current context."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        await task

    async def attempt(
        self,
        callee: Callee,
        attempt: Attempt,
        kwargs: Mapping[str, Any],
        logger: Logger,
        *,
        stored: bool,
        then: Callable[[], Awaitable[None]] | None = None,
    ) -> Attempted:
        """Call the handler once, if its limits allow, and log what came of it.

        If the function returns, the rest of the handler follows, and its errors are those of the handler.
        If the result is to be stored, it must be JSON; such results are returned as deep copies.
        """
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(f"{attempt.label} is invoked.")
        settled = attempt.precheck()
        if settled is not None:
            logger.log(settled.level, settled.text)
            return Attempted(settled, error=_limit_error(settled))
        error: BaseException | None = None
        result = None
        try:
            # The indices are arguments too, and they win over all others.
            arguments = {**_of_attempt(callee, attempt), **kwargs} if callee.of_attempts else dict(kwargs)
            handler_var.set(callee.handler)
            if callee.is_async:
                coroutine = callee.fn(**arguments)
                # It may wait for days: nobody else needs them meanwhile.
                del arguments, kwargs
                result = await coroutine
            else:
                result = await self._threads.call(self._settings.execution.executor, callee.fn, arguments)
            if then is not None:
                await then()
            if stored and result is not None:
                result = _stored(result)
            settled = attempt.settle(Raised.NOTHING)
        except asyncio.CancelledError:
            logger.warning(f"{attempt.label} is cancelled. Will escalate.")
            raise
        except Exception as e:
            error = e
            settled = settle(attempt, e)
        level = settled.level
        if level and error is None:
            say(logger, level, settled.text)
        elif level:
            logger.log(level, settled.text, exc_info=error if settled.traceback else None)
        if error is None:
            return Attempted(settled, result)
        if settled.final and isinstance(error, TemporaryError):
            limit = _limit_error(settled)
            limit.__cause__ = error
            error = limit
        try:
            return Attempted(settled, None, error)
        finally:
            # Its traceback refers to here: they are not to keep each other.
            del error


def _of_attempt(callee: Callee, attempt: Attempt) -> dict[str, Any]:
    started = attempt.started
    return {
        "param": callee.handler.param,
        "retry": attempt.retry,
        "started": EPOCH + datetime.timedelta(0, 0, started),
        "runtime": datetime.timedelta(0, 0, Attempt.now() - started),
    }


def settle(attempt: Attempt, error: Exception) -> Settled:
    """Ask the rules what follows from the error."""
    message = str(error)
    shown = message or repr(error)
    if isinstance(error, HandlerChildrenRetry):
        return attempt.settle(Raised.CHILDREN, message, error.delay, shown)
    if isinstance(error, TemporaryError):
        return attempt.settle(Raised.TEMPORARY, message, error.delay, shown)
    if isinstance(error, PermanentError):
        return attempt.settle(Raised.PERMANENT, message, None, shown)
    return attempt.settle(Raised.ARBITRARY, message, None, shown)


def is_async_fn(fn: Callable[..., Any] | None) -> bool:
    """Whether the function is a coroutine function: itself, or what it wraps."""
    if isinstance(fn, functools.partial):
        return is_async_fn(fn.func)
    if fn is not None and hasattr(fn, "__wrapped__"):
        return is_async_fn(fn.__wrapped__)
    return inspect.iscoroutinefunction(fn)


def _stored(result: Any) -> Any:
    try:
        return plain(result)
    except (TypeError, ValueError) as e:
        # Repeating cannot help: the function would only do its work once again.
        raise PermanentError(f"The result cannot be stored in the status of the object: {e}") from e


def _limit_error(settled: Settled) -> Exception:
    timed_out = "timed out" in settled.text or "time out after" in settled.text
    return (HandlerTimeoutError if timed_out else HandlerRetriesError)(settled.message)


async def invoke(
    fn: Callable[..., Any],
    *,
    settings: OperatorSettings | None = None,
    kwargs: Mapping[str, Any] | None = None,
    **_: Any,
) -> Any:
    """Call a function, sync or async, with these arguments. For those who test their handlers."""
    arguments = dict(kwargs or {})
    if is_async_fn(fn):
        return await fn(**arguments)
    executor = settings.execution.executor if settings is not None else None
    context = contextvars.copy_context()
    call = functools.partial(context.run, functools.partial(fn, **arguments))
    return await asyncio.get_running_loop().run_in_executor(executor, call)
