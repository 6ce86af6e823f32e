"""Activities of an operator: startup, cleanup, authentication, probes. Their progress is not persisted."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import itertools
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from kopf._intents import compatibility
from kopf._intents.causes import ActivityCause
from kopf._intents.handler_pool import HandlerPool
from kopf._intents.handlers import ActivityHandler
from kopf._intents.registries import OperatorRegistry, activity_handlers
from kopf._intents.settings import OperatorSettings
from kopf._objects import credentials
from kopf._objects.memos import AnyMemo
from kopf._objects.reasons import Activity
from kopf._objects.typedefs import HandlerId
from kopf._runtime.bridge import Attempt, HandlerCall, Outcome
from kopf._runtime.context import cause_var
from kopf._runtime.errors import OperationalError
from kopf._runtime.given_credentials import GivenCredentials
from kopf._runtime.invocation import Invoker, PreparedHandler, attempt_limits
from kopf._runtime.login import has_broken_library, login_with_kubeconfig, login_with_service_account
from kopf._runtime.work_tracking import work_tracker_var


class CallResult(NamedTuple):
    """The result of the last call of a handler: the outcome, the returned value, and the error."""

    outcome: Outcome
    result: Any = None
    exception: BaseException | None = None

    @property
    def final(self) -> bool:
        """Whether the handler is not called again."""
        return self.outcome.final


class ActivityError(OperationalError):
    """Some handlers of an activity have failed for good; the first of the errors is the cause of this one."""

    # Under this name it is found in logs.
    __module__ = "kopf._core.engines.activities"

    def __init__(
        self, msg: str, *, outcomes: Mapping[HandlerId, CallResult], activity: Activity | None = None
    ) -> None:
        super().__init__(msg)
        self.outcomes = outcomes
        self.activity = activity


class Activities:
    """Runs the activities of one operator. With `is_single_attempt`, failed handlers are not retried."""

    def __init__(
        self,
        *,
        registry: OperatorRegistry,
        settings: OperatorSettings,
        memo: AnyMemo,
        indices: Mapping[str, Any],
        invoker: Invoker,
        given: GivenCredentials | None = None,
        is_single_attempt: bool = False,
    ) -> None:
        super().__init__()
        self._is_single_attempt = is_single_attempt
        self._registry = registry
        self._given = given if given is not None else GivenCredentials(None)
        self._settings = settings
        self._memo = memo
        self._indices = indices
        self._invoker = invoker
        self._activity_numbers = itertools.count(1)
        self._tracker = tracker = work_tracker_var.get()
        clock = tracker.clock if tracker is not None else None
        self._sleep: Callable[[float], Awaitable[None]] = clock.sleep if clock is not None else asyncio.sleep

    async def run(self, activity: Activity) -> dict[HandlerId, Any]:
        """Call the handlers, with retries, until all of them are finished; get their results.

        Raises `ActivityError` if any of them has failed for good.
        """
        # The engine's numbers are positive.
        activity_number = -next(self._activity_numbers)
        try:
            return await self._run(activity, activity_number)
        finally:
            if self._tracker is not None:
                self._tracker.work_finished(activity_number)

    async def _run(self, activity: Activity, activity_number: int) -> dict[HandlerId, Any]:
        activity_logger = logging.getLogger(f"kopf.activities.{activity.value}")
        cause = ActivityCause(
            logger=activity_logger,
            indices=self._indices,
            memo=self._memo,
            activity=activity,
            settings=self._settings,
        )
        pending = [_Pending(handler) for handler in activity_handlers(self._registry).get_handlers(activity)]
        if activity is Activity.AUTHENTICATION:
            for item in pending:
                # The client needs their results.
                item.prepared.names_api = False
                item.prepared.is_detached = self._is_detached(item.handler)
        outcomes: dict[HandlerId, CallResult] = {}
        while pending:
            if self._tracker is not None:
                self._tracker.work_started(activity_number, f"Activity {activity.value!r}")
            for item in pending:
                if item.next_attempt_at > Attempt.now():
                    continue
                cause_var.set(cause)
                attempt = self._attempt(item)
                call = await HandlerCall(
                    self._invoker, item.prepared, attempt, cause.kwargs, activity_logger, keep_error=True
                )
                item.retry += 1
                item.next_attempt_at = Attempt.now() + int((call.outcome.delay or 0) * 1_000_000)
                if call.outcome.final:
                    outcomes[item.prepared.handler.id] = CallResult(call.outcome, call.result, call.error)
            pending = [item for item in pending if item.prepared.handler.id not in outcomes]
            if pending:
                delay = min(item.next_attempt_at for item in pending) - Attempt.now()
                if self._tracker is not None:
                    self._tracker.work_finished(activity_number)
                await self._sleep(max(0, delay / 1_000_000))
        for last in outcomes.values():
            if last.outcome.failed:
                raise ActivityError(
                    "One or more handlers failed.", outcomes=outcomes, activity=activity
                ) from last.exception
        return {id: last.result for id, last in outcomes.items() if last.result is not None}

    def _attempt(self, item: _Pending) -> Attempt:
        limits = attempt_limits(item.handler, self._settings)
        if self._is_single_attempt:
            limits = limits._replace(retries=1)
        return Attempt(**limits._asdict(), started=item.started, retry=item.retry)

    def _is_detached(self, handler: ActivityHandler) -> bool:
        # A client library waits for its exec plugin without a limit, and the exit must not wait for both.
        # Executors of users get every call of users' functions.
        is_default = type(self._settings.execution.executor) is HandlerPool
        is_awaited = compatibility.of_settings(self._settings).waits_for_logins
        return (handler._fallback or is_default) and not is_awaited

    async def authenticate(self, is_renewal: bool = False) -> list[tuple[str, dict[str, Any]]] | None:
        """Get the credentials, by the ids of the login handlers, for the engine.

        None if there are no handlers but our own fallbacks: the engine reads kubeconfigs and service accounts
        better, with tokens that rotate and with exec plugins. It does so also if the client library of a
        fallback cannot be imported. If the operator must use only the credentials
        that it has been given, these replace all results. New credentials of the vault replace the login.

        A renewal only reads the credentials again, because of certificates: those of the vault stay valid.
        """
        added = self._given.take() if is_renewal else self._given.take_new()
        if added:
            return serialize_all(added)
        results: Mapping[Any, Any] = {}
        exclusive = self._given.exclusive
        handlers = activity_handlers(self._registry).get_handlers(Activity.AUTHENTICATION)
        if not all(handler._fallback and handler.fn in NATIVE_LOGINS for handler in handlers):
            results = await self.run(Activity.AUTHENTICATION)
            is_fallback = all(handler._fallback for handler in handlers)
            if not results and exclusive is None and is_fallback and has_broken_library():
                return None
        elif exclusive is None:
            return None
        return serialize_all(results if exclusive is None else exclusive)

    async def authenticate_client(self) -> list[tuple[str, dict[str, Any]]] | None:
        """Get the credentials for a separate client, while there is no engine: see `authenticate`."""
        given = self._given.current()
        return serialize_all(given) if given else await self.authenticate()


NATIVE_LOGINS = (login_with_kubeconfig, login_with_service_account)
"""The login handlers for which the engine has its own implementations, with more features."""


class _Pending:
    """A handler of an activity that is not done yet."""

    def __init__(self, handler: ActivityHandler) -> None:
        self.handler = handler
        self.prepared = PreparedHandler(handler)
        self.started = self.next_attempt_at = Attempt.now()
        self.retry = 0


def serialize_all(found: Mapping[Any, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Serialize credentials by their keys."""
    return [(str(key), serialize_credentials(info)) for key, info in found.items()]


def serialize_credentials(info: Any) -> dict[str, Any]:
    """Serialize the credentials for the engine. Fields that it cannot use are errors."""
    if not isinstance(info, credentials.KubeContext):
        raise ValueError("Only ConnectionInfo/AiohttpSession instances are accepted.")
    if isinstance(info, credentials.AiohttpSession):
        raise TypeError(
            "AiohttpSession cannot be used: the cluster is talked to without aiohttp. Return "
            "kopf.ConnectionInfo with the same server, and with its token, client certificate, "
            "or username and password."
        )
    if not isinstance(info, credentials.ConnectionInfo):
        raise TypeError(f"Unsupported credentials type: {type(info).__name__}")
    for name in ("as_http_headers", "as_ssl_context"):
        if getattr(type(info), name) is not getattr(credentials.ConnectionInfo, name):
            raise TypeError(
                f"{type(info).__name__}.{name}() cannot be used: set the fields of ConnectionInfo."
            )
    if not info.server:
        raise credentials.LoginError(
            "The credentials have no server: "
            "set `server` of the cluster in the kubeconfig, or of kopf.ConnectionInfo."
        )
    if isinstance(info.priority, int) and not -(2**63) <= info.priority < 2**63:
        raise credentials.LoginError(
            f"The priority of the credentials does not fit into 64 bits: {info.priority}. "
            "Set `priority` of kopf.ConnectionInfo to a smaller number."
        )
    names = [field.name for field in dataclasses.fields(credentials.ConnectionInfo)]
    values = {name: getattr(info, name) for name in names}
    if info.trust_env and not info.proxy_url:
        values["proxy_url"] = proxy_from_environment(info.server)
    fields: dict[str, Any] = {name: _decode(value) for name, value in values.items() if _is_given(value)}
    if info.expiration is not None:
        expiration = info.expiration
        aware = expiration if expiration.tzinfo is not None else expiration.replace(tzinfo=datetime.UTC)
        fields["expiration"] = aware.timestamp()
    return fields


def proxy_from_environment(server: str) -> str | None:
    """The proxy that the environment (`HTTPS_PROXY`, `NO_PROXY`, etc.) has for the server, if any."""
    import urllib.parse
    import urllib.request

    url = urllib.parse.urlsplit(server)
    if not url.hostname or urllib.request.proxy_bypass(url.netloc.rpartition("@")[2]):
        return None
    proxy = urllib.request.getproxies().get(url.scheme)
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


def _is_given(value: Any) -> bool:
    # An empty text is none, as in `ConnectionInfo.as_http_headers()` and `as_ssl_context()`.
    return value is not None and not (isinstance(value, (str, bytes)) and not value)


def _decode(value: Any) -> Any:
    return os.fsdecode(value) if isinstance(value, (bytes, os.PathLike)) else value
