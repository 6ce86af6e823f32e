"""Leadership in handlers: the check before each call, and the term of the call."""

import asyncio
import json
import logging
import threading

import kopf
import pytest
from kopf._intents.handlers import ActivityHandler, IndexingHandler, WatchingHandler
from kopf._intents.registries import activity_handlers, resource_handlers
from kopf._runtime import loggers
from kopf._runtime.bridge import Attempt, HandlerCall
from kopf._runtime.executor import ExecutorPool
from kopf._runtime.invocation import Invoker, PreparedHandler
from kopf._runtime.leadership import Election


class FakeTerm:
    """A term of the engine."""

    number, name, namespace, identity = 7, "operator", "ns", "host_1"

    def __init__(self, fence):
        self.fence = fence

    def expires_in(self):
        return 9.5 if self.fence.is_open else None


class FakeElection:
    """The election of the engine."""

    def __init__(self):
        self.is_open = True
        self.rejected = 0

    def term(self):
        return FakeTerm(self) if self.is_open else None

    def admits_call(self):
        self.rejected += not self.is_open
        return self.is_open


@pytest.fixture
def fence():
    return FakeElection()


def prepared(fn, kind=WatchingHandler):
    """The handler as it is called."""
    registry = kopf.OperatorRegistry()
    decorators = {WatchingHandler: kopf.on.event, IndexingHandler: kopf.index}
    if kind is ActivityHandler:
        kopf.on.startup(registry=registry)(fn)
        [handler] = activity_handlers(registry).get_all_handlers()
    else:
        decorators[kind]("things", registry=registry)(fn)
        [handler] = resource_handlers(registry)
    assert isinstance(handler, kind)
    return PreparedHandler(handler)


def call(fence, fn, kind=WatchingHandler):
    """Call the function as a handler: its outcome, and its error."""
    settings = kopf.OperatorSettings()
    options = {"errors": "temporary", "backoff": 1.0, "timeout": None, "retries": None}
    attempt = Attempt(label="Handler 'fn'", started=0, retry=0, **options)
    logger = logging.getLogger("kopf.objects")

    async def invoke():
        invoker = Invoker(settings, ExecutorPool())
        invoker.election = Election(fence)
        handler = prepared(fn, kind)
        return await HandlerCall(invoker, handler, attempt, {}, logger, keep_error=True)

    try:
        return asyncio.run(invoke())
    finally:
        settings.execution.executor.shutdown()


def test_there_is_no_leadership_outside_of_handlers():
    assert kopf.leadership() is None


@pytest.mark.parametrize("is_async", [True, False])
def test_a_handler_gets_the_term_of_its_call(fence, is_async):
    seen = []

    def fn(**_):
        seen.append(kopf.leadership())

    async def async_fn(**_):
        seen.append(kopf.leadership())

    result = call(fence, async_fn if is_async else fn)
    assert result.error is None
    [leadership] = seen
    assert (leadership.name, leadership.namespace, leadership.identity) == ("operator", "ns", "host_1")
    assert (leadership.term, leadership.expires_in) == (7, 9.5)
    leadership.check()
    fence.is_open = False
    assert leadership.expires_in == 0
    with pytest.raises(kopf.LeadershipLost, match=r"The term 7 by the lease ns/operator has ended\."):
        leadership.check()
    assert issubclass(kopf.LeadershipLost, kopf.TemporaryError)


@pytest.mark.parametrize("is_async", [True, False])
def test_a_handler_is_not_called_after_the_end_of_the_term(fence, is_async):
    """LEA-4: no function begins after a stop of the process that was longer than the lease."""
    called = []

    def fn(**_):
        called.append(True)

    async def async_fn(**_):
        called.append(True)

    fence.is_open = False
    result = call(fence, async_fn if is_async else fn)
    assert isinstance(result.error, kopf.LeadershipLost)
    assert (called, fence.rejected) == ([], 1)


def test_a_function_that_has_waited_for_a_thread_is_not_called_after_the_end_of_the_term(fence):
    called = []
    admitted = []

    class LosingFence(FakeElection):
        """The term ends between the check in the event loop and that in the thread."""

        def admits_call(self):
            admitted.append(threading.current_thread() is threading.main_thread())
            self.is_open = len(admitted) == 1
            return super().admits_call()

    losing = LosingFence()
    result = call(losing, lambda **_: called.append(True))
    assert isinstance(result.error, kopf.LeadershipLost)
    assert (called, admitted, losing.rejected) == ([], [True, False], 1)


@pytest.mark.parametrize("kind", [IndexingHandler, ActivityHandler])
def test_handlers_of_all_replicas_are_called_without_a_term(fence, kind):
    seen = []

    async def fn(**_):
        seen.append(kopf.leadership())

    fence.is_open = False
    result = call(fence, fn, kind)
    assert (result.error, seen, fence.rejected) == (None, [None], 0)


def test_json_logs_of_handlers_have_the_replica_and_the_term(fence):
    formatter = loggers.make_formatter(kopf.LogFormat.JSON)
    lines = []

    async def fn(**_):
        for extra in ({}, {"term": "mine"}):
            record = logging.makeLogRecord({"name": "any", "levelno": 20, "msg": "m", **extra})
            lines.append(json.loads(formatter.format(record)))

    call(fence, fn)
    assert [(line["replica"], line["term"]) for line in lines] == [("host_1", 7), ("host_1", "mine")]
    lines.clear()
    fence.is_open = False
    call(fence, fn, IndexingHandler)
    assert "replica" not in lines[0]
