"""Calls of reconcilers, without an engine: their arguments and their answers."""

import asyncio
import dataclasses
import datetime
import gc
import threading
import weakref
from types import SimpleNamespace

import kopf
import pytest
from kopf._objects.indices import Indexers
from kopf._objects.memos import Memo
from kopf._runtime import bridge, shutdown
from kopf._runtime.environment import HandlerEnvironment
from kopf._runtime.executor import ExecutorPool
from kopf._runtime.invocation import Invoker
from kopf._runtime.memos import MemoRegistry
from kopf._runtime.reconciling import Reconcilers

TEXT = '{"kind":"K","metadata":{"name":"n","namespace":"ns","uid":"u"},"spec":{"x":1}}'


class Job:
    """A call in place of the engine's."""

    run, handler, uid, resource, deleting = 1, 0, "u", None, False
    retry, started, runtime = 2, 3_000_000, 4.0

    def __init__(self):
        self.object = bridge.Object.decode(TEXT)
        self.answers = []

    def reply(self, *args):
        self.answers.append(args)


def reconcilers_of(fn, indices=(), invoker=None, **options):
    registry = kopf.OperatorRegistry()
    kopf.on.reconcile("shops", id="fn", registry=registry, **options)(fn)
    settings, indexers = kopf.OperatorSettings(), Indexers()
    indexers.update(indices)
    environment = HandlerEnvironment(
        registry._reconciling.get_all_handlers(),
        settings=settings,
        memos=MemoRegistry(Memo()),
        indexers=indexers,
        invoker=invoker or Invoker(settings, ExecutorPool()),
    )
    return Reconcilers(environment, complete=lambda _: None)


def request_handlers_of(fn, *args, **options):
    return reconcilers_of(fn, *args, **options).request_handlers()


async def answered(job):
    async with asyncio.timeout(30):
        while not job.answers:
            await asyncio.sleep(0.001)
    return job.answers


async def finished(job):
    for _ in range(10):
        await asyncio.sleep(0)
    return job.answers


def test_functions_get_all_arguments_and_indices_win():
    seen = {}

    async def fn(**kwargs):
        seen.update(kwargs)

    async def main():
        job, index = Job(), object()
        request_handlers_of(fn, {"retry": index})[bridge.CallReconciler](job)
        assert await finished(job) == [("succeeded", None)]
        assert seen["retry"] is index

    asyncio.run(main())
    assert seen["spec"] == {"x": 1} and (seen["namespace"], seen["name"], seen["uid"]) == ("ns", "n", "u")
    assert seen["started"].timestamp() == 3 and seen["runtime"].total_seconds() == 4
    assert not seen["deleting"] and not seen["stopped"] and not seen["conditions"] and seen["param"] is None


@pytest.mark.parametrize("error", [None, kopf.TemporaryError("x", delay=1)])
@pytest.mark.parametrize("is_async", [False, True])
def test_the_exit_and_the_health_checks_know_the_running_calls(is_async, error):
    async def main():
        invoker, job, seen = Invoker(kopf.OperatorSettings(), ExecutorPool()), Job(), []

        def fn(**_):
            seen.append(list(invoker.running.values()))
            if error is not None:
                raise error

        async def coroutine(**kwargs):
            fn(**kwargs)

        request_handlers_of(coroutine if is_async else fn, invoker=invoker)[bridge.CallReconciler](job)
        await answered(job)
        assert invoker.running == {}
        return seen

    [calls] = asyncio.run(main())
    assert shutdown.describe_calls(calls).startswith("1 handler: fn of ns/n (")


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_call_whose_thread_outlives_the_operator_stays_among_the_running_ones(is_stopped):
    started, release = threading.Event(), threading.Event()

    def fn(**_):
        started.set()
        assert release.wait(30)

    async def main():
        invoker, job = Invoker(kopf.OperatorSettings(), ExecutorPool()), Job()
        reconcilers = reconcilers_of(fn, invoker=invoker)
        handlers = reconcilers.request_handlers()
        handlers[bridge.CallReconciler](job)
        await asyncio.to_thread(started.wait, 30)
        if is_stopped:
            handlers[bridge.StopReconciler](SimpleNamespace(run=1, reasons=1, cancel="stop"))
        reconcilers.abandon()
        assert await answered(job) == [("cancelled", None)]
        release.set()
        return [handler.id for handler, _, _ in invoker.running.values()]

    assert asyncio.run(main()) == ["fn"]


@pytest.mark.parametrize("turns", [0, 3])
def test_cancelled_calls_are_answered_even_before_they_begin(turns):
    async def fn(**_):
        await asyncio.Event().wait()

    async def main():
        job = Job()
        handlers = request_handlers_of(fn)
        handlers[bridge.CallReconciler](job)
        for _ in range(turns):
            await asyncio.sleep(0)
        handlers[bridge.StopReconciler](SimpleNamespace(run=1, reasons=1, cancel="stop"))
        assert await finished(job) == [("cancelled", None)]

    asyncio.run(main())


def test_of_a_call_that_exceeds_its_timeout_only_its_own_condition_is_left():
    async def fn(patch, conditions, **_):
        patch.spec.update(x=2)
        patch.fns.append(print)
        conditions.set("Ready", True, reason="Applied")
        await asyncio.Event().wait()

    async def main():
        job = Job()
        handlers = request_handlers_of(fn, condition="Done", reconcile_timeout=5)
        handlers[bridge.CallReconciler](job)
        await asyncio.sleep(0)
        handlers[bridge.StopReconciler](SimpleNamespace(run=1, reasons=1, cancel="timeout"))
        [(result, delay, patch, has_functions, conditions)] = await finished(job)
        assert (result, delay, patch, has_functions) == ("failed", None, {}, False)
        text = "The call has exceeded its timeout of 5 seconds."
        assert conditions == ([("Done", (False, "ReconcileTimeoutError", text))], None)

    asyncio.run(main())


class Panic(BaseException):
    """An error that is no `Exception`, such as a panic of another extension."""


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    code: int


class Speechless(Exception):
    def __str__(self):
        return None


@pytest.mark.parametrize(
    "error, delay, text",
    [
        (Panic("boo"), None, "failed with an exception and will try again later: boo"),
        (Frozen(5), None, "failed with an exception and will try again later: 5"),
        (lambda **_: asyncio.sleep(0), None, "has returned a coroutine that nothing awaits"),
        (Speechless(), None, "failed with an exception and will try again later: Speechless()"),
        (kopf.TemporaryError("x", delay=datetime.timedelta(5)), 60, "failed temporarily: x (delay="),
    ],
)
def test_unusual_errors_are_failures_with_a_line(caplog, error, delay, text):
    async def failing(**_):
        raise error

    async def main():
        job = Job()
        request_handlers_of(error if callable(error) else failing)[bridge.CallReconciler](job)
        assert await answered(job) == [("failed", delay)]

    asyncio.run(main())
    assert text in caplog.text


@pytest.mark.parametrize(
    "error, result, delay",
    [
        (None, "succeeded", None),
        (lambda: kopf.Requeue(5), "requeued", 5),
        (lambda: kopf.TemporaryError("x", delay=5), "failed", 5),
        (lambda: kopf.PermanentError("x"), "permanent", None),
    ],
)
def test_the_objects_of_a_call_are_freed_without_the_garbage_collector(error, result, delay):
    seen = []

    async def fn(body, stopped, patch, conditions, logger, **_):
        patch.status["x"] = body.spec["x"]
        seen.extend(weakref.ref(one) for one in (body, stopped, patch, conditions, logger))
        if error is not None:
            raise error()

    async def main():
        job = Job()
        handlers = request_handlers_of(fn)
        handlers[bridge.CallReconciler](job)
        assert await finished(job) == [(result, delay, {"status": {"x": 1}}, False, None)]
        handlers[bridge.ReconcilerEnded](SimpleNamespace(run=1))

    gc.disable()
    try:
        asyncio.run(main())
        assert [ref() for ref in seen] == [None] * 5
    finally:
        gc.enable()
