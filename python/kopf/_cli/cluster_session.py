"""The client and the settings of an operator without its engine, for commands that inspect its objects.

The startup, login and cleanup handlers of the operator are called, so that its settings and credentials are
known. Other handlers are not called.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import functools
import sys
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

import click

from kopf._cli.error_report import explain
from kopf._cli.inspection import run_inspection
from kopf._cli.message_addresses import address_line
from kopf._intents.registries import OperatorRegistry
from kopf._intents.settings import OperatorSettings
from kopf._objects.apierrors import ApiError, Forbidden
from kopf._objects.credentials import LoginError
from kopf._objects.resources import Resource
from kopf._runtime import loaders
from kopf._runtime.activities import ActivityError
from kopf._runtime.bridge import Attempt
from kopf._runtime.client.sync_api import SyncApi
from kopf._runtime.default_registry import get_default_registry
from kopf._runtime.handler_api import OperatorApi

T = TypeVar("T")


class SessionFailure(click.ClickException):
    """The cluster cannot be inspected; `check` names the check of `kopf doctor` that has failed."""

    def __init__(self, check: str, message: str) -> None:
        super().__init__(message)
        self.check = check


@dataclass(frozen=True)
class Coordination:
    """How replicas of the operator share the work, as far as its options state it, and not its settings."""

    lease: str | None = None
    lease_namespace: str | None = None
    peering: str | None = None

    def apply(self, settings: OperatorSettings) -> None:
        """Set what is given. The startup handlers follow, as in an operator."""
        if self.lease is not None:
            settings.leadership.enabled, settings.leadership.name = True, self.lease
        if self.lease_namespace is not None:
            settings.leadership.namespace = self.lease_namespace
        if self.peering is not None:
            settings.peering.name = self.peering


NOT_COORDINATED = Coordination()


@dataclass(frozen=True)
class Session:
    """The operator between its startup and its cleanup."""

    api: SyncApi
    registry: OperatorRegistry
    settings: OperatorSettings
    has_handlers: bool
    """Whether the files of the operator are loaded."""
    interrupted: threading.Event
    """Set by Ctrl+C and SIGTERM."""

    @functools.cached_property
    def resources(self) -> list[Resource]:
        """All resources of the cluster, as they were when they were first needed."""
        return self.api.resources()

    def now(self) -> int:
        """The time by the clock of the server, in microseconds since the epoch.

        The times that operators write are compared with it: the clock of this machine can be wrong, and then
        live operators would look dead.
        """
        return Attempt.now() + round(self._clock_offset * 1e6)

    @functools.cached_property
    def _clock_offset(self) -> float:
        before = time.time()
        try:
            answer = self.api.request("GET", "/version")
        except ApiError:
            return 0.0  # the next request reports the error
        return clock_offset(answer.headers.get("date"), before, time.time()) or 0.0


def clock_offset(date: str | None, sent: float, received: float) -> float | None:
    """The seconds by which the clock of the server is ahead; at least by so much.

    Zero if the time in the header `Date`, which has whole seconds, fits between the request and the response.
    `None` without a valid header.
    """
    try:
        moment = email.utils.parsedate_to_datetime(date or "").timestamp()
    except ValueError:
        return None
    if moment > received:
        return moment - received
    return min(moment + 1 - sent, 0.0)


def in_session(
    paths: Collection[str],
    modules: Collection[str],
    namespaces: Collection[str],
    fn: Callable[[Session], T],
    coordination: Coordination = NOT_COORDINATED,
) -> T | None:
    """Load the files, if there are any; call the function between the startup and the cleanup, in a thread.

    The result is `None` if the command is interrupted. Errors of the API and of the login are a
    `ClickException`. Errors of loading are raised. The output of the author's code is redirected to stderr:
    it must not be among the results.
    """
    with contextlib.redirect_stdout(sys.stderr):
        loaders.preload(paths=paths, modules=modules)
    registry, settings = get_default_registry(), OperatorSettings()
    coordination.apply(settings)
    results: list[T] = []
    failures: list[Exception] = []
    interrupted = threading.Event()

    async def inspect(provider: OperatorApi) -> None:
        try:
            api = await provider.provide_blocking()
            has_handlers = bool(paths or modules)
            session = Session(api.using(retries=False), registry, settings, has_handlers, interrupted)
            results.append(await asyncio.to_thread(fn, session))
        except Exception as error:
            failures.append(error)
        finally:
            interrupted.set()

    with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(click.Abort):
        run_inspection(inspect, registry=registry, settings=settings, namespaces=namespaces)
    for error in failures:
        raise _explained(error)
    return results[0] if results else None


def _explained(error: Exception) -> Exception:
    """The error as one paragraph, if it is not about the code of the author."""
    if isinstance(error, (ActivityError, LoginError)):
        text = explain(error)
        return SessionFailure("login", f"There are no valid credentials: {text}{address_line(text)}")
    if isinstance(error, Forbidden):
        return SessionFailure("access", f"A permission is missing: {error} Use -n for single namespaces.")
    if isinstance(error, ApiError):
        return SessionFailure("server", f"The cluster cannot be read: {error}")
    return error
