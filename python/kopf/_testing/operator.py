"""Operators for tests: each runs in a thread, on one cluster, with its own registry."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
import time
from collections.abc import Collection
from types import TracebackType
from typing import Any

from kopf._intents.errors import ErrorsMode, PermanentError, TemporaryError
from kopf._intents.handlers import Handler
from kopf._intents.lifecycles import LifeCycleFn
from kopf._intents.registries import OperatorRegistry
from kopf._intents.settings import OperatorSettings
from kopf._runtime import operator
from kopf._runtime.default_registry import registry_var
from kopf._runtime.errors import error_observer_var, text_of
from kopf._runtime.preloading import load_modules
from kopf._runtime.work_tracking import work_tracker_var
from kopf._testing.async_twins import AsyncOperator
from kopf._testing.cluster import Cluster
from kopf._testing.idle_tracker import IdleTracker
from kopf._testing.observed_selector import new_event_loop
from kopf._testing.operator_handlers import Handlers, OperatorHandlers, connection_var

# Nothing of a test may stop here for as long as an operator in production may take.
STOP_TIMEOUT = 30.0

# Seconds without any activity that count as idle where it is not known for certain.
QUIET_PERIOD = 0.5

# For the startup handlers: nothing of a test may wait for ever.
STARTUP_TIMEOUT = 30.0


class UnexpectedError(Exception):
    """A handler has raised an exception that the test does not expect; the exception is the cause."""

    __module__ = "kopf.testing"


class Operator:
    """Runs an operator for the duration of the `with` block, in a separate thread.

    The handlers are files, and functions which declare some; those that use the default registry are
    declared in this operator's registry only. On entry, it waits until the operator is started. An error
    that ends the operator is raised as soon as the test waits for something, or on exit.

    If it is `strict`, then unexpected exceptions of handlers are raised, too, as `UnexpectedError`: as soon
    as the test waits for something, or on exit. Expected are `TemporaryError` and `PermanentError`,
    exceptions of handlers with `errors=ErrorsMode.IGNORED`, and those of the types of `allow_errors`.

    Args:
        cluster: The cluster.
        *handlers: Files with handlers, and functions that declare handlers.
        registry: The registry of the operator; by default, a new one. The handlers are in it while the
            operator runs.
        settings: The settings of the operator; by default, new ones.
        lifecycle: Which of the due change handlers are called next; by default, the default lifecycle.
        namespaces: The namespaces to serve; by default, the whole cluster, or the namespace of a cluster of
            the kind `kubeconfig`.
        memo: The memo of the operator.
        standalone: Whether to ignore peering.
        priority: The priority in the peering.
        identity: The identity in the peering; by default, a generated one.
        timeout: The timeout of the exit in seconds.
        startup_timeout: The timeout of the startup handlers in seconds.
        strict: Whether unexpected exceptions of handlers are raised.
        allow_errors: The types of exceptions that are expected.
    """

    def __init__(
        self,
        cluster: Cluster,
        *handlers: Handlers,
        registry: OperatorRegistry | None = None,
        settings: OperatorSettings | None = None,
        lifecycle: LifeCycleFn | None = None,
        namespaces: Collection[str] | None = None,
        memo: Any = None,
        standalone: bool = True,
        priority: int | None = None,
        identity: str | None = None,
        timeout: float = STOP_TIMEOUT,
        startup_timeout: float = STARTUP_TIMEOUT,
        strict: bool = True,
        allow_errors: type[Exception] | tuple[type[Exception], ...] = (),
    ) -> None:
        super().__init__()
        self.cluster = cluster
        self.registry = registry if registry is not None else OperatorRegistry()
        self.settings = settings if settings is not None else OperatorSettings()
        self._lifecycle = lifecycle
        # An embedded cluster is served as a whole; a shared one only in the namespace of the test.
        is_own_cluster = cluster.kind == "embedded"
        self._namespaces = (
            list(namespaces) if namespaces is not None else [] if is_own_cluster else [cluster.namespace]
        )
        self._memo = memo
        self._standalone = standalone
        self._priority = priority
        self._identity = identity
        self._timeout = timeout
        self._startup_timeout = startup_timeout
        self._strict = strict
        self._allow_errors = allow_errors
        self._unexpected: list[tuple[str, BaseException]] = []
        self._handlers = OperatorHandlers(handlers)
        # Other clusters have real time.
        self._clock_control = cluster.clock if is_own_cluster else None
        self._tracker = IdleTracker(self._clock_control.clock if self._clock_control is not None else None)
        self._clock_registration = contextlib.ExitStack()
        self._ready = threading.Event()
        self._started_or_failed = threading.Event()  # either ready, or ended before that
        self._stop: asyncio.Event | None = None
        self._is_stop_requested = False  # maybe before there is an event loop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def __repr__(self) -> str:
        state = "running" if self.running else "not running"
        return f"<{type(self).__name__}: {state}, with {self.registry!r} on {self.cluster!r}>"

    def __enter__(self) -> Operator:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        if exc_val is None:
            self.stop()
        else:
            with contextlib.suppress(Exception):  # the error of the block is more important
                self.stop()

    @property
    def aio(self) -> AsyncOperator:
        """The same methods for asynchronous tests: `await operator.aio.wait_until_idle()`."""
        return AsyncOperator(self)

    async def __aenter__(self) -> Operator:
        starting = asyncio.ensure_future(asyncio.to_thread(self.start))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The thread continues, and the block that would stop the operator is not entered.
            self._request_stop()
            await asyncio.shield(asyncio.ensure_future(self._stop_after(starting)))
            raise
        return self

    async def _stop_after(self, starting: asyncio.Future[None]) -> None:
        with contextlib.suppress(Exception):  # the cancellation is more important
            await starting
            await asyncio.to_thread(self.stop)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.__exit__, exc_type, exc_val, exc_tb)

    def start(self) -> None:
        """Load the handlers, and start; returns when the startup handlers have succeeded."""
        __tracebackhide__ = True
        if self._thread is not None:
            raise RuntimeError("The operator is started already: stop it before it is started again.")
        self._handlers.load(self.registry)
        try:
            self._start_thread()
            self._wait_until_started()
        except BaseException:  # also Ctrl+C, and the timeout of the test: it would not be stopped later
            self._request_stop()
            self._forget()
            raise

    def _start_thread(self) -> None:
        # It may have been started before.
        self._ready.clear()
        self._started_or_failed.clear()
        self._loop = self._stop = None
        self._is_stop_requested = False
        load_modules()
        self._thread = threading.Thread(target=self._run, name="kopf-operator", daemon=True)
        self._tracker.thread_starts()
        if self._clock_control is not None:
            self._clock_registration.enter_context(self._clock_control.track(self._tracker))
        self._thread.start()
        self.cluster.add_check(self.check)

    def _wait_until_started(self) -> None:
        __tracebackhide__ = True
        deadline = time.monotonic() + self._startup_timeout
        if self._clock_control is not None:
            self._clock_control.advance_until(self._started_or_failed.is_set, self._startup_timeout)
        if not self._started_or_failed.wait(max(0.0, deadline - time.monotonic())):
            with contextlib.suppress(Exception):  # it is probably the startup handler that does not return
                self.stop()
            raise TimeoutError(
                f"The startup handlers have not finished in {self._startup_timeout} seconds; see the log for "
                "their errors. If they need longer, set startup_timeout=..."
            )
        if not self._ready.is_set():
            self.stop()

    def stop(self) -> None:
        """Stop gracefully, as by a signal; raises what the operator has ended with, if it is an error."""
        __tracebackhide__ = True
        if self._thread is None:
            return
        try:
            self._request_stop()
            deadline = time.monotonic() + self._timeout
            if self._clock_control is not None:
                self._clock_control.advance_until(lambda: not self.running, self._timeout)
            self._thread.join(max(0.0, deadline - time.monotonic()))
        finally:
            self._forget()
        if self._thread.is_alive():
            raise TimeoutError(f"The operator has not stopped in {self._timeout} seconds.")
        self._thread = None
        self.check()

    def _request_stop(self) -> None:
        """Let it stop; its errors are not raised by the waits of the cluster any more."""
        self.cluster.remove_check(self.check)
        self._is_stop_requested = True
        if self._loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has ended by itself
                self._loop.call_soon_threadsafe(self._stop.set)

    def _forget(self) -> None:
        """Leave nothing of it in the clock, in the registry and in the import path, even if it still runs."""
        self._clock_registration.close()
        self._handlers.unload()

    def check(self) -> None:
        """Raise the error that has ended the operator, if any, or `UnexpectedError` if a handler has raised
        an unexpected exception, unless it is not strict.

        Each exception is raised once.
        """
        __tracebackhide__ = True
        fatal_error, self._error = self._error, None
        if fatal_error is not None:
            raise fatal_error
        unexpected, self._unexpected = self._unexpected, []
        if unexpected and self._strict:
            texts = [
                f"{name} has failed: {type(error).__name__}: {text_of(error)}" for name, error in unexpected
            ]
            hint = "If it is expected, start the operator with allow_errors=..., or with strict=False."
            raise UnexpectedError("\n".join([*texts, hint])) from unexpected[0][1]

    def disable_strict(self) -> None:
        """Ignore unexpected exceptions: the test has failed already, for another reason."""
        self._strict = False

    def _on_handler_error(self, handler: Handler, error: BaseException) -> None:
        """Keep an unexpected exception of a handler; called in the operator's thread."""
        expected = isinstance(error, (TemporaryError, PermanentError, self._allow_errors))
        if not expected and handler.errors is not ErrorsMode.IGNORED:
            self._unexpected.append((str(handler), error))

    @property
    def running(self) -> bool:
        """Whether it has not ended yet, by itself or not."""
        return self._thread is not None and self._thread.is_alive()

    def wait_until_idle(self, *, pause: float | None = None, timeout: float = 30) -> None:
        """Wait until no handler runs, nothing is written, and nothing is on its way.

        Handlers that wait for their next attempt are idle, and so are daemons that wait. With the embedded
        server, this is known for certain; with others, nothing must start for the pause (seconds).

        Args:
            pause: How long nothing must start, in seconds; only for clusters that are not embedded.
            timeout: The timeout in seconds.
        """
        __tracebackhide__ = True
        started = time.monotonic()
        self._tracker.wait_until_connected(timeout)
        if self._clock_control is not None and pause is None:
            self._clock_control.wait_until_idle(timeout, started=started)
        else:
            remaining = started + timeout - time.monotonic()
            busy = self._tracker.wait_until_idle(pause if pause is not None else QUIET_PERIOD, remaining)
            if busy:
                what = ", ".join(dict.fromkeys(busy))
                raise TimeoutError(f"The operator was not idle within {timeout:g} seconds. Busy: {what}.")
        self.check()

    def _run(self) -> None:
        try:
            # An empty context: the operator must not get the context variables of the test.
            contextvars.Context().run(self._run_in_context)
        except BaseException as e:
            self._error = e
        finally:
            self._tracker.thread_ends()
            self._started_or_failed.set()

    def _run_in_context(self) -> None:
        work_tracker_var.set(self._tracker)
        error_observer_var.set(self._on_handler_error)
        registry_var.set(self.registry)
        connection_var.set(self.cluster.connection)
        loop, selector = new_event_loop()
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            self._tracker.observe(selector)
            runner.run(self._main())

    async def _main(self) -> None:
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        if self._is_stop_requested:
            self._stop.set()
        self._tracker.set_loop(self._loop)
        ready = asyncio.Event()
        signal_task = asyncio.create_task(self._signal_ready(ready))
        logging.getLogger("kopf").debug("An operator is started for a test.")
        try:
            await operator.operator(
                registry=self.registry,
                settings=self.settings,
                lifecycle=self._lifecycle,
                namespaces=self._namespaces,
                clusterwide=not self._namespaces,
                memo=self._memo,
                standalone=self._standalone,
                priority=self._priority,
                identity=self._identity,
                stop_flag=self._stop,
                ready_flag=ready,
            )
        finally:
            signal_task.cancel()

    async def _signal_ready(self, ready: asyncio.Event) -> None:
        await ready.wait()
        self._ready.set()
        self._started_or_failed.set()
