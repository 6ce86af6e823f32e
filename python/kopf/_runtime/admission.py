"""Admission reviews: calls of admission handlers, and the function for webhook servers."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kopf._intents import matching
from kopf._intents.causes import WebhookCause
from kopf._intents.errors import AdmissionError, PermanentError, TemporaryError
from kopf._intents.handlers import WebhookHandler
from kopf._intents.serialization import has_leader_election
from kopf._objects import diffs
from kopf._objects.bodies import Body
from kopf._objects.patches import Patch
from kopf._runtime.bridge import AdmissionReview, Attempt, Engine, HandlerCall, Object
from kopf._runtime.context import cause_var
from kopf._runtime.eager_tasks import start_task
from kopf._runtime.environment import HandlerEnvironment
from kopf._runtime.errors import ENDING_ERRORS, OperationalError, message_of, repr_of, sendable, text_of
from kopf._runtime.invocation import PreparedHandler
from kopf._runtime.loggers import LocalObjectLogger, full_name
from kopf._runtime.supervision import Task, supervise
from kopf._runtime.work_tracking import work_tracker_var

if TYPE_CHECKING:
    from kopf._objects.reviews import Request, Response, WebhookServerProtocol
    from kopf._runtime.client.api import Api

logger = logging.getLogger("kopf._core.engines.admission")

NO_SERVER = (
    "Admission handlers exist, but no admission server/tunnel is configured in `settings.admission.server`. "
    "Set it in a startup handler: `settings.admission.server = kopf.WebhookServer(...)`; "
    "for development, `kopf.WebhookAutoServer()`."
)


START_LIMIT = 10.0
"""Seconds in which the engine starts."""
START_PAUSE = 0.01
"""Seconds between attempts to get its client."""


class WebhookError(Exception):
    """The request for a review makes no sense to the operator; no handlers are called."""


class MissingDataError(WebhookError):
    """The request has no data that it must have."""


class UnknownResourceError(WebhookError):
    """The request is about a resource that has no handlers."""


class UnknownHandlerError(UnknownResourceError):
    """The request is for a handler that is not declared."""


class AmbiguousResourceError(WebhookError):
    """The request is about a resource that could be any of several ones."""


_PROBLEMS: Mapping[str, type[Exception]] = {
    "malformed": KeyError,
    "missing": MissingDataError,
    "handler": UnknownHandlerError,
    "unknown": UnknownResourceError,
    "ambiguous": AmbiguousResourceError,
}


class ReviewDiff(diffs.Diff):
    """The diff of two whole objects, computed at the first access."""

    def __init__(self, old: Object | None, new: Object | None, /) -> None:
        super().__init__(())
        self._pair: tuple[Object | None, Object | None] | None = (old, new)

    @property
    def _items(self) -> tuple[diffs.DiffItem, ...]:
        if self._pair is not None:
            old, new = (half.to_dict() if half is not None else None for half in self._pair)
            self._cached, self._pair = tuple(diffs.diff(old, new)), None
        return self._cached

    @_items.setter
    def _items(self, items: tuple[diffs.DiffItem, ...]) -> None:
        self._cached = items


class Admission:
    """The function that webhook servers call for each request; its result is what they send back."""

    def __init__(self, engine: Engine, environment: HandlerEnvironment) -> None:
        super().__init__()
        self.engine = engine
        self._environment = environment
        self._settings = environment.settings
        self._invoker = environment.invoker
        self._tasks: set[asyncio.Task[Any]] = set()
        self._tracker = work_tracker_var.get()
        # Unlike the numbers of activities and of the engine.
        self._review_numbers = itertools.count(-(2**32), -1)

    @property
    def is_needed(self) -> bool:
        """Whether a webhook server is configured, or needed by handlers."""
        has_handlers = any(isinstance(handler, WebhookHandler) for handler in self._environment.handlers)
        return has_handlers or self._settings.admission.server is not None

    @property
    def elects_leader(self) -> bool:
        """Whether there are several replicas, which elect a leader."""
        return has_leader_election(self._settings)

    def may_write(self) -> bool:
        """Whether this replica writes to the cluster: it is the leader, or there is no leader election."""
        election = self.engine.election()
        return election is None or election.term() is not None

    async def connect(self) -> Api:
        """The client of the operator, for the webhook server itself. It may wait for the start of the engine.

        Raises:
            RuntimeError: The operator does not run.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + START_LIMIT
        while True:
            try:
                return await self._provide_api()
            except RuntimeError:  # the engine starts in other threads
                if loop.time() >= deadline:
                    raise
                await asyncio.sleep(START_PAUSE)

    async def _provide_api(self) -> Api:
        if self._invoker.api is None:
            raise RuntimeError("The operator has no client.")
        api: Api = await self._invoker.api.provide({}, is_async=True)
        return api

    async def serve(self) -> None:
        """Run the webhook server of the settings until it ends."""
        server = self._settings.admission.server
        if server is None:
            raise OperationalError(NO_SERVER)
        async with contextlib.AsyncExitStack() as stack:
            serve: WebhookServerProtocol = server
            if isinstance(server, contextlib.AbstractAsyncContextManager):
                entered = await stack.enter_async_context(server)
                serve = entered if callable(entered) else server
            async for config in serve(self):
                self.engine.publish_webhook(dict(config))

    async def __call__(
        self,
        request: Request,
        *,
        webhook: str | None = None,
        reason: str | None = None,
        headers: Mapping[str, str] | None = None,
        sslpeer: Mapping[str, Any] | None = None,
    ) -> Response:
        """Review a request, with the handlers that it is for.

        Raises `WebhookError` if it makes no sense.
        """
        review = self.engine.review(
            request,
            webhook=webhook,
            reason=str(reason) if reason is not None else None,
            headers=headers,
            sslpeer=sslpeer,
        )
        if isinstance(review, tuple):
            problem, text = review
            raise _PROBLEMS[problem](text)
        response: Response | None = await asyncio.get_running_loop().create_task(self._review(review))
        if response is None:
            raise RuntimeError("The review has been answered elsewhere.")
        return response

    def receive(self, review: AdmissionReview) -> None:
        """Review a request that has come to our own server, which gets the response."""
        loop, object = asyncio.get_running_loop(), review.object
        name = f"Admission review of {full_name(object.namespace, object.name)}"
        coroutine = self._review_or_fail(review)
        task = start_task(loop, coroutine, name=name, context=contextvars.copy_context())
        if not task.done():
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def cancel(self) -> None:
        """Cancel all tasks, and wait for their end."""
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _review_or_fail(self, review: AdmissionReview) -> None:
        try:
            await self._review(review)
        except (asyncio.CancelledError, *ENDING_ERRORS):
            raise
        except BaseException as e:
            logger.exception(f"The admission request cannot be served: {message_of(e)}")
            review.fail("Internal Server Error")

    async def _review(self, review: AdmissionReview) -> Any:
        if self._tracker is None:
            return await self._respond(review)
        number, object = next(self._review_numbers), review.object
        self._tracker.work_started(number, f"Admission review of {full_name(object.namespace, object.name)}")
        try:
            return await self._respond(review)
        finally:
            self._tracker.work_finished(number)

    async def _respond(self, review: AdmissionReview) -> Any:
        cause = self._make_cause(review)
        denials: list[tuple[int, str, int | None]] = []
        for prepared in self._select(review, cause):
            cause_var.set(cause)
            attempt = Attempt(
                label=prepared.label,
                errors="permanent",
                backoff=self._settings.execution.default_backoff,
                started=Attempt.now(),
            )
            call = await HandlerCall(
                self._invoker, prepared, attempt, cause.kwargs, cause.logger, keep_error=True
            )
            if call.error is not None:
                denials.append(_denial(call.error))
        warnings = [sendable(str(warning)) for warning in cause.warnings]
        patch = cause.patch
        if patch.fns:
            return review.respond(denials, warnings, None, patch.as_json_patch())
        return review.respond(denials, warnings, patch or None, None)

    # The engine has asked all filters but callbacks; those are asked before any handler is called.
    def _select(self, review: AdmissionReview, cause: WebhookCause) -> list[PreparedHandler]:
        selected: dict[tuple[int, str], PreparedHandler] = {}
        for index, guarded in review.handlers:
            handler = self._environment.handlers[index]
            if not guarded or matching.match(handler, cause):
                prepared = self._environment.prepared_handlers[index]
                selected.setdefault((id(handler.fn), handler.id), prepared)
        return list(selected.values())

    def _make_cause(self, review: AdmissionReview) -> WebhookCause:
        body, memos = Body(review.object), self._environment.memos
        return WebhookCause(
            logger=LocalObjectLogger(body=body, settings=self._settings),
            indices=self._environment.indices,
            memo=memos.get_for_review(review.uid, ephemeral=review.operation == "CREATE"),
            resource=review.resource,
            patch=Patch(None, body=body),
            body=body,
            dryrun=review.dryrun,
            reason=None,
            webhook=None,
            headers=review.headers if review.headers is not None else {},
            sslpeer=review.sslpeer if review.sslpeer is not None else {},
            userinfo=review.userinfo,
            warnings=[],
            operation=review.operation,
            subresource=review.subresource,
            old=Body(review.old) if review.old is not None else None,
            new=Body(review.new) if review.new is not None else None,
            diff=ReviewDiff(review.old, review.new),
        )


class WebhookServerTask:
    """The task of the webhook server. It ends after the engine, which removes the webhooks from the cluster.

    If the server ends by itself, the engine is stopped. Its error is the error of the operator.
    """

    def __init__(self, admission: Admission | None, *, on_end: Callable[[], None]) -> None:
        super().__init__()
        self._admission = admission
        self._on_end = on_end
        self._task: Task | None = None

    async def __aenter__(self) -> None:
        if self._admission is not None and self._admission.is_needed:
            name = "admission webhook server"
            coroutine = supervise(name, self._admission.serve(), finishable=False)
            self._task = asyncio.get_running_loop().create_task(coroutine, name=name)
            self._task.add_done_callback(lambda _: self._on_end())

    @property
    def ended(self) -> bool:
        """Whether the server has ended by itself: then the engine is stopped, too."""
        return self._task is not None and self._task.done()

    async def __aexit__(self, *_: object) -> None:
        task = self._task
        if task is None:
            return
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                raise error


def _denial(error: BaseException) -> tuple[int, str, int | None]:
    message = sendable(text_of(error) or repr_of(error))
    if isinstance(error, AdmissionError):
        return 0, message, int(error.code) if error.code else None
    severity = 1 if isinstance(error, PermanentError) else 2 if isinstance(error, TemporaryError) else 3
    return severity, message, None
