"""Run of one operator: its root tasks, from the startup to the cleanup."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
import threading
from collections.abc import Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any, Literal

from kopf._intents import compatibility, serialization
from kopf._intents.compatibility import Compatibility
from kopf._intents.handlers import Handler, ReconcilingHandler, ResourceHandler
from kopf._intents.lifecycles import BUILTIN_LIFECYCLES, LifeCycleFn
from kopf._intents.registries import (
    OperatorRegistry,
    activity_handlers,
    cache_arguments,
    index_ids,
    resource_handlers,
)
from kopf._intents.selectors import NamespacePattern
from kopf._intents.settings import OperatorSettings
from kopf._objects.indices import Indexers
from kopf._objects.memos import AnyMemo
from kopf._objects.reasons import Activity
from kopf._objects.resources import make_resource
from kopf._runtime import banner, handler_checks, posting
from kopf._runtime.activities import Activities, serialize_all
from kopf._runtime.admission import Admission, WebhookServerTask
from kopf._runtime.bridge import AdmissionReview, Bridge, Engine, PeeringWritten, StatusServer, __version__
from kopf._runtime.context import settings_var
from kopf._runtime.engine_failures import Failure, to_exception
from kopf._runtime.environment import HandlerEnvironment
from kopf._runtime.errors import OperationalError
from kopf._runtime.executor import ExecutorPool
from kopf._runtime.given_credentials import GivenCredentials
from kopf._runtime.handler_api import OperatorApi
from kopf._runtime.invocation import Invoker
from kopf._runtime.loop_monitor import EventLoopMonitor
from kopf._runtime.memos import MemoRegistry
from kopf._runtime.optional_parts import connect_parts, serialize_declared, serialize_startup
from kopf._runtime.settings_sync import SettingsSync
from kopf._runtime.shutdown import Shutdown, is_interrupt_ignored
from kopf._runtime.stop_flags import Flag, is_raised, raise_flag, wait_flag
from kopf._runtime.supervision import Task, supervise
from kopf._runtime.task_dispatcher import TaskDispatcher
from kopf._runtime.work_tracking import work_tracker_var

if TYPE_CHECKING:
    from kopf._runtime.caches import OperatorCaches

logger = logging.getLogger("kopf._core.reactor.running")

PeeringCommand = Literal["freeze", "resume"]
Inspection = Callable[[OperatorApi], Coroutine[None, None, None]]
"""A coroutine function that runs between the startup and the cleanup, in place of the engine."""


class OperatorRunner:
    """Runs one operator, from its startup to its cleanup."""

    def __init__(
        self,
        *,
        registry: OperatorRegistry,
        settings: OperatorSettings,
        lifecycle: LifeCycleFn,
        identity: str,
        namespaces: list[NamespacePattern],
        memo: AnyMemo,
        indexers: Indexers,
        stop_flag: Flag | None,
        ready_flag: Flag | None,
        command: Coroutine[None, None, None] | None,
        liveness_endpoint: str | None,
        status_address: str | None,
        vault: Any,
        peering_command: PeeringCommand | None,
        inspection: Inspection | None = None,
    ) -> None:
        super().__init__()
        self._registry = registry
        self._settings = settings
        self._lifecycle = lifecycle
        self._identity = identity
        self._namespaces = namespaces
        self._memo = memo
        self._indexers = indexers
        self._ensure_indices()
        self._stop_flag = stop_flag
        self._ready_flag = ready_flag
        self._command = command
        self._status_urls = (liveness_endpoint, status_address)
        self._status: StatusServer | None = None
        self._credentials = GivenCredentials(vault)
        self._peering_command: PeeringCommand | None = peering_command
        self._inspection = inspection
        self._loop = asyncio.get_running_loop()
        self._signalled: asyncio.Future[Any] = self._loop.create_future()
        self._started = asyncio.Event()
        self._pool = ExecutorPool(self._loop)
        self._invoker = Invoker(settings, self._pool)
        self._shutdown = Shutdown(self._loop, self._invoker, settings)
        self._login_error: Exception | None = None
        # A command must not wait for what may never succeed.
        is_inspected = inspection is not None
        self._activities = Activities(
            registry=registry,
            settings=settings,
            memo=memo,
            indices=indexers.indices,
            invoker=self._invoker,
            given=self._credentials,
            is_single_attempt=is_inspected,
        )
        self._api = self._invoker.api = OperatorApi(
            settings, self._activities.authenticate_client, retries=not is_inspected
        )
        self._tasks: list[Task] = []
        self.written_peerings: list[PeeringWritten] = []

    # They are empty before the first object, but they are there.
    def _ensure_indices(self) -> None:
        self._indexers.ensure(index_ids(self._registry))
        self._indexers.add_caches(cache_arguments(self._registry))

    # Startup handlers can change it.
    @property
    def _compatibility(self) -> Compatibility:
        return compatibility.of_settings(self._settings)

    def spawn(self) -> list[Task]:
        """Start the root tasks; when any of them ends, all must be ended."""
        self._install_signal_handlers()
        self._spawn("stop-flag checker", self._check_stop_flags(), finishable=True)
        self._spawn("ultimate termination", self._arm_kill_timer(), finishable=True)
        # The handlers have logged their errors already.
        self._spawn("startup/cleanup activities", self._start_and_clean_up(), logged=False)
        if self._command is not None:
            self._spawn("the command", self._command, when_started=True, finishable=True)
        elif self._inspection is not None:
            self._spawn("the command", self._inspection(self._api), when_started=True, finishable=True)
        elif self._peering_command is not None:
            self._spawn("the command", self._run_engine(), when_started=True, finishable=True)
        else:
            self._spawn("multidimensional multitasker", self._run_engine(), when_started=True)
        return self._tasks

    def _spawn(
        self,
        name: str,
        coroutine: Coroutine[Any, Any, None],
        *,
        when_started: bool = False,
        finishable: bool = False,
        logged: bool = True,
    ) -> None:
        delayed = self._when_started(coroutine) if when_started else coroutine
        supervised = supervise(name, delayed, finishable=finishable) if logged else delayed
        task = self._loop.create_task(supervised, name=name)
        # A task that is cancelled before its first step awaits nothing; Python would warn of all of these.
        task.add_done_callback(lambda _: (delayed.close(), coroutine.close()))
        self._tasks.append(task)

    def _install_signal_handlers(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            # In tests, operators always run in threads.
            level = logging.WARNING if work_tracker_var.get() is None else logging.DEBUG
            logger.log(level, "OS signals are ignored: running not in the main thread.")
            return
        try:
            for signum in self._stop_signals():
                self._loop.add_signal_handler(signum, self._receive_signal, signum)
        except NotImplementedError:
            logger.warning("OS signals are ignored: can't add signal handler in Windows.")

    def _stop_signals(self) -> tuple[signal.Signals, ...]:
        is_kept = not self._compatibility.receives_ignored_interrupts and is_interrupt_ignored()
        return (signal.SIGTERM,) if is_kept else (signal.SIGINT, signal.SIGTERM)

    def _receive_signal(self, signum: signal.Signals) -> None:
        if not self._signalled.done():
            self._signalled.set_result(signum)
        elif not self._compatibility.ignores_second_signal:
            self._shutdown.interrupt(signum)

    async def _check_stop_flags(self) -> None:
        waiters: list[asyncio.Future[Any]] = [self._signalled]
        flag_waiter: Task | None = None
        if self._stop_flag is not None:
            flag_waiter = self._loop.create_task(wait_flag(self._stop_flag), name="stop-flag waiter")
            waiters.append(flag_waiter)
        try:
            done, _ = await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if flag_waiter is not None:
                flag_waiter.cancel()
        result = done.pop().result()
        if isinstance(result, signal.Signals):
            logger.info(f"Signal {result.name!s} is received. Operator is stopping.")
        elif result is None:
            logger.info("Stop-flag is raised. Operator is stopping.")
        else:
            logger.info(f"Stop-flag is set to {result!r}. Operator is stopping.")
        if not self._compatibility.ignores_second_signal:
            self._shutdown.begin()

    # It sleeps until the operator is stopping, and then schedules the kill of the process.
    async def _arm_kill_timer(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            timeout = self._settings.process.ultimate_exiting_timeout
            if timeout is not None and not is_raised(self._stop_flag):
                thread = threading.get_ident()
                self._loop.call_later(timeout, functools.partial(signal.pthread_kill, thread, signal.SIGKILL))

    async def _when_started(self, coroutine: Coroutine[Any, Any, None]) -> None:
        await self._started.wait()
        await coroutine

    def _log_handler_checks(self, handlers: Collection[Handler]) -> None:
        # An inspection reports the mistakes itself.
        if self._compatibility.starts_silently or self._inspection is not None:
            return
        arguments = [*index_ids(self._registry), *cache_arguments(self._registry)]
        for text in handler_checks.check(handlers, arguments):
            logger.warning(text)

    def _log_banner(self, handlers: Collection[ResourceHandler]) -> None:
        # Applications that embed operators have their own logs.
        is_operator = self._shutdown.is_of_process and self._peering_command is None
        if handlers and is_operator and not self._compatibility.starts_silently:
            scope = banner.describe_namespaces(self._namespaces)
            logger.info(f"Serving {banner.describe_handlers(handlers)} in {scope}.")

    def _connect_status(self) -> dict[str, Any]:
        if not any(self._status_urls) and not serialization.has_status_address(self._settings):
            return {}
        from kopf._runtime import status  # other operators do not load it

        if self._status is None:
            self._status = status.start_status_server(*self._status_urls, self._settings)
        elif not self._status_urls[1]:
            status.move_status(self._status, self._settings)
        return {"status": self._status, "probes": status.has_probes(self._registry)}

    async def _start_and_clean_up(self) -> None:
        is_served = self._command is None and self._inspection is None and self._peering_command is None
        if is_served and not self._compatibility.has_no_health_checks:
            # Probes observe the startup handlers. The task of the engine reports the error, if there is one.
            with contextlib.suppress(OperationalError):
                self._connect_status()
        try:
            await self._run_activities()
        finally:
            if self._status is not None:
                self._status.stop()

    async def _run_activities(self) -> None:
        settings_var.set(self._settings)
        self._log_handler_checks(activity_handlers(self._registry).get_all_handlers())
        try:
            await self._activities.run(Activity.STARTUP)
        except asyncio.CancelledError:
            logger.warning("Startup activity is only partially executed due to cancellation.")
            raise
        raise_flag(self._ready_flag)
        self._started.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        current = asyncio.current_task()
        others = {task for task in self._tasks if task is not current and not task.done()}
        try:
            if others:
                await asyncio.wait(others)
        except asyncio.CancelledError:
            logger.warning("Cleanup activity is not executed at all due to cancellation.")
            raise
        try:
            if self._login_error is not None and self._compatibility.skips_cleanup_without_login:
                raise self._login_error
            await self._activities.run(Activity.CLEANUP)
        except asyncio.CancelledError:
            logger.warning("Cleanup activity is only partially executed due to cancellation.")
            raise
        finally:
            self._api.close()
            self._shutdown.end()

    async def _run_engine(self) -> None:
        # Not earlier: the handlers of startup may change the settings and even declare handlers.
        handlers = resource_handlers(self._registry)
        self._ensure_indices()
        self._log_handler_checks(handlers)
        self._log_banner(handlers)
        iterated: serialization.Iterated = {}
        environment = HandlerEnvironment(
            handlers,
            settings=self._settings,
            memos=MemoRegistry(self._memo),
            indexers=self._indexers,
            invoker=self._invoker,
        )
        caches = self._make_caches(environment)
        declared = [serialize_declared(handler, self._settings) for handler in handlers]
        engine = self._make_engine([*declared, *(caches.serialize() if caches is not None else [])], iterated)
        self._track_work(engine)
        dispatcher = TaskDispatcher(
            environment,
            lifecycle=self._lifecycle,
            login=self._activities.authenticate,
            probe=functools.partial(self._activities.run, Activity.PROBE),
            namespaces=self._namespaces,
        )
        if caches is not None:
            dispatcher.request_handlers |= caches.request_handlers()
            self._invoker.caches = caches.readers
            self._invoker.children = caches.children
        dispatcher.request_handlers[PeeringWritten] = self.written_peerings.append
        bridge = Bridge(engine, dispatcher.request_handlers, self._loop)
        bridge.before_completion = SettingsSync(engine, self._settings, iterated).push_if_changed
        dispatcher.complete = bridge.complete
        admission = Admission(engine, environment)
        dispatcher.request_handlers[AdmissionReview] = admission.receive
        events = posting.EventQueue(engine.post)
        dispatcher.set_context(events)
        bridge.open()
        connections = contextlib.ExitStack()
        try:
            engine.start()
            self._api.attach(engine)
            self._connect_monitors(connections, engine, environment)
            connections.enter_context(connect_parts(self._registry, engine, handlers, self._invoker))
            if caches is not None:
                caches.attach(engine)
                connections.callback(caches.detach)
            webhooks = WebhookServerTask(None if self._peering_command else admission, on_end=engine.stop)
            async with webhooks:
                failure = await self._wait_until_finished(engine, dispatcher.finished, webhooks)
                bridge.poll_all()
                dispatcher.is_abandoned = failure is not None and failure[0] == "leadership"
                failure = self._shutdown.check(failure)
        finally:
            await dispatcher.cancel()
            await admission.cancel()
            bridge.close()
            connections.close()
            self._api.detach()
            self._login_error = dispatcher.login_error
        if failure is not None:
            raise to_exception(failure, dispatcher.login_error)

    def _track_work(self, engine: Engine) -> None:
        tracker = work_tracker_var.get()
        if tracker is not None:
            tracker.set_loop(self._loop)
            engine.wake_for_everything()
            tracker.set_engine(engine.pending, engine.awaited_streams)

    def _connect_monitors(
        self, connections: contextlib.ExitStack, engine: Engine, environment: HandlerEnvironment
    ) -> None:
        has_async_handlers = any(prepared.is_async for prepared in environment.prepared_handlers)
        if has_async_handlers and not self._compatibility.ignores_blocked_loops:
            connections.enter_context(EventLoopMonitor(self._loop, self._invoker))
        is_monitored = self._status or serialization.has_leader_election(self._settings)
        if is_monitored and not self._compatibility.has_no_health_checks:
            from kopf._runtime.status import Heartbeat  # other operators do not load it

            connections.enter_context(Heartbeat(engine, self._invoker, self._loop))

    def _make_engine(self, declared: list[dict[str, Any]], iterated: serialization.Iterated) -> Engine:
        globs = [pattern for pattern in self._namespaces if isinstance(pattern, str)]
        return Engine(
            handlers=declared,
            settings=serialize_startup(self._settings, iterated, works=self._peering_command is None),
            lifecycle=next((fn.__name__ for fn in BUILTIN_LIFECYCLES if fn is self._lifecycle), "custom"),
            namespaces=globs,
            foreign=len(globs) < len(self._namespaces),
            agent=f"kopf/{__version__}",
            make_resource=make_resource,
            identity=self._identity,
            **self._connect_status(),
            credentials=serialize_all(self._credentials.take()),
            command=self._peering_command,
        )

    def _make_caches(self, environment: HandlerEnvironment) -> OperatorCaches | None:
        has_reconcilers = any(isinstance(handler, ReconcilingHandler) for handler in environment.handlers)
        if self._peering_command is not None or not (cache_arguments(self._registry) or has_reconcilers):
            return None
        from kopf._runtime.caches import OperatorCaches  # other operators do not load it

        caches = OperatorCaches(self._registry, environment)
        return caches if caches.serialize() else None

    async def _wait_until_finished(
        self, engine: Engine, finished: asyncio.Future[Failure | None], webhooks: WebhookServerTask
    ) -> Failure | None:
        cancelled = False
        while not finished.done():
            try:
                await asyncio.wait([finished])
            except asyncio.CancelledError:
                # The engine finishes its work, and then ends by itself.
                cancelled = True
                engine.stop()
            except GeneratorExit:
                engine.stop()  # the loop is closed, and the engine has its own threads
                raise
        failure = finished.result()
        if not (cancelled or failure is not None or self._peering_command is not None or webhooks.ended):
            logger.warning("The engine has finished unexpectedly.")
        return failure
