"""Shutdown of an operator: reports of what it waits for, and the immediate exit on a second Ctrl+C."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import logging
import os
import signal
import threading
import time
import types
from collections.abc import Callable, Collection

from kopf._intents.handlers import Handler
from kopf._intents.settings import OperatorSettings
from kopf._objects.logging_types import Logger
from kopf._runtime.engine_failures import Failure
from kopf._runtime.functions import is_async_fn
from kopf._runtime.invocation import Invoker
from kopf._runtime.loggers import ObjectLogger, extra_of, object_name

REPORT_AFTER = 3.0
REPORT_EVERY = 10.0
SHOWN = 5
# One Ctrl+C can come as two signals: from the terminal, and from the program that has started this one.
SAME_SIGNAL_WITHIN = 0.5
FORCED_EXIT_CODE = 130
HINT = " Press Ctrl+C again to stop at once; unfinished handlers are repeated at the next start."

Calls = Collection[tuple[Handler, Logger, float]]

logger = logging.getLogger("kopf._core.reactor.running")


def is_interrupt_ignored() -> bool:
    """Whether this process was started with SIGINT ignored, as shells start jobs in the background."""
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def _hint() -> str:
    return "" if is_interrupt_ignored() else HINT


def end_process(code: int = FORCED_EXIT_CODE) -> None:
    """End the process without waiting for anything, not even for threads."""
    logging.shutdown()
    os._exit(code)


class ProcessShutdown:
    """The exit of a process that is only for one operator, after the event loop is closed.

    Functions in threads cannot be interrupted: the process waits for them, unless Ctrl+C is pressed again.
    """

    def __init__(self, end: Callable[..., None] = end_process) -> None:
        super().__init__()
        self._end = end
        self._calls: Calls = ()
        self._executor: concurrent.futures.Executor | None = None
        self._since = time.monotonic()
        self._timeout: float | None = None

    def leave(self, calls: Calls, since: float, settings: OperatorSettings) -> None:
        """The operator has ended, and leaves these calls to be finished in the executor of the settings."""
        self._calls, self._since = list(calls), since
        self._executor = settings.execution.executor
        self._timeout = settings.process.ultimate_exiting_timeout

    def force(self, calls: Calls) -> None:
        """End the process in the middle of these calls."""
        what = f" Not finished: {describe_calls(calls)}." if calls else ""
        logger.warning(f"Ctrl+C is pressed again. Operator is stopped at once, without cleanup.{what}")
        self._end()

    def abandon(self, text: str) -> None:
        """End the process with an error, although functions are running."""
        logger.error(text)
        self._end(1)

    def wait(self) -> None:
        """Wait for the functions in threads; it is called in the main thread after the event loop."""
        if not self._calls or self._executor is None:
            return
        previous = None if is_interrupt_ignored() else signal.signal(signal.SIGINT, self._interrupt)
        try:
            waiter = threading.Thread(target=self._executor.shutdown, name="kopf-exit", daemon=True)
            waiter.start()
            report = self._since + REPORT_AFTER
            while waiter.is_alive():
                waiter.join(max(0.0, report - time.monotonic()))
                if waiter.is_alive():
                    self._check_timeout()
                    logger.info(f"Waiting for {describe_calls(self._calls)}.{_hint()}")
                    report = time.monotonic() + REPORT_EVERY
        finally:
            if previous is not None:
                signal.signal(signal.SIGINT, previous)

    def _interrupt(self, signum: int, frame: types.FrameType | None) -> None:
        self.force(self._calls)

    def _check_timeout(self) -> None:
        if self._timeout is not None and time.monotonic() > self._since + self._timeout:
            logger.error(f"The process is killed: after {self._timeout} s, {describe_calls(self._calls)}.")
            signal.raise_signal(signal.SIGKILL)


process_shutdown_var: contextvars.ContextVar[ProcessShutdown | None] = contextvars.ContextVar(
    "process_shutdown_var", default=None
)
"""Only the command line sets it: an application that embeds an operator ends in its own way."""


class Shutdown:
    """The exit of one operator, from its beginning; it is used in the thread of the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, invoker: Invoker, settings: OperatorSettings) -> None:
        super().__init__()
        self._loop = loop
        self._invoker = invoker
        self._settings = settings
        self._process = process_shutdown_var.get()
        self._since: float | None = None
        self._next_report: asyncio.TimerHandle | None = None

    @property
    def is_of_process(self) -> bool:
        """Whether the process is only for this operator."""
        return self._process is not None

    def begin(self) -> None:
        """The operator is asked to stop: from now on, the log shows what it waits for."""
        if self._since is None:
            self._since = time.monotonic()
            self._next_report = self._loop.call_later(REPORT_AFTER, self._report)

    def end(self) -> None:
        """The operator has stopped; functions in threads may still run."""
        if self._next_report is not None:
            self._next_report.cancel()  # it would keep the operator in the loop of an application
        if self._process is not None and self._since is not None:
            self._process.leave(self._invoker.running.values(), self._since, self._settings)

    def check(self, failure: Failure | None) -> Failure | None:
        """The failure of the engine, if there is one. If the lease is lost while handlers run that cannot be
        stopped, this ends the process, or, if it is not only for this operator, names such a handler.
        """
        if failure is None or failure[0] != "leadership":
            return failure
        text = describe_overdue(self._invoker.running.values()) or failure[1]
        if self._process is not None:
            self._process.abandon(text)
        return failure[0], text, failure[2]

    def interrupt(self, signum: int) -> None:
        """One more signal is received. A second Ctrl+C ends the process; all other signals change nothing."""
        if self._process is None or self._since is None or signum != signal.SIGINT:
            return
        if time.monotonic() - self._since >= SAME_SIGNAL_WITHIN:
            self._process.force(self._invoker.running.values())

    def _report(self) -> None:
        calls = self._invoker.running.values()
        if calls:
            hint = _hint() if self._process is not None else ""
            logger.info(f"Waiting for {describe_calls(calls)}.{hint}")
        self._next_report = self._loop.call_later(REPORT_EVERY, self._report)


def describe_calls(calls: Calls) -> str:
    """The handlers with their objects, the oldest call first."""
    now = time.monotonic()
    texts = []
    for handler, object_logger, began in sorted(calls, key=lambda call: call[2])[:SHOWN]:
        # The logger of an object knows which one it is.
        ref = extra_of(object_logger).get("k8s_ref") if isinstance(object_logger, ObjectLogger) else None
        of_object = f" of {object_name(ref)}" if ref else ""
        texts.append(f"{handler.id}{of_object} ({now - began:.0f} s)")
    if len(calls) > SHOWN:
        texts.append(f"{len(calls) - SHOWN} more")
    return f"{len(calls)} handler{'s' if len(calls) > 1 else ''}: {', '.join(texts)}"


def describe_overdue(calls: Calls) -> str | None:
    """The error of a replica that has lost the lease while handlers run: those in threads come first."""
    if not calls:
        return None
    handler = min((handler for handler, _, _ in calls), key=lambda handler: is_async_fn(handler.fn))
    name = getattr(handler.fn, "__name__", handler.id)
    if is_async_fn(handler.fn):
        return f"Leadership was lost while {name}() was running; exiting, as it has not ended when cancelled."
    return f"Leadership was lost while {name}() was running in a thread; exiting, as it cannot be stopped."
