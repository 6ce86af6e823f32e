"""Calls of handlers as coroutines in native code: they behave as coroutines of Python do."""

import asyncio
import contextvars
import dataclasses
import datetime
import functools
import gc
import inspect
import logging
import threading
import types
import weakref

import anyio
import kopf
import pytest
from kopf._intents.registries import resource_handlers
from kopf._runtime.bridge import Attempt, HandlerCall, TaskCoroutine
from kopf._runtime.executor import ExecutorPool
from kopf._runtime.invocation import Invoker, PreparedHandler

LOGGER = logging.getLogger("kopf.objects")


def call_of(fn, *, retries=None, retry=0, invoker=None, **options):
    """A call of the function as an event handler; only in an event loop."""
    registry = kopf.OperatorRegistry()
    kopf.on.event("things", id="fn", registry=registry)(fn)
    [handler] = resource_handlers(registry)
    limits = {"errors": "temporary", "backoff": 1.0, "started": 0, "timeout": None}
    attempt = Attempt(label="Handler 'fn'", retry=retry, retries=retries, **limits)
    invoker = invoker or Invoker(kopf.OperatorSettings(), ExecutorPool())
    return HandlerCall(invoker, PreparedHandler(handler), attempt, {"name": "n"}, LOGGER, **options)


def outcome_of(fn, **options):
    async def main():
        return await call_of(fn, **options)

    return asyncio.run(main())


def test_it_returns_itself_with_the_outcome_and_the_result():
    async def fn(name, retry, **_):
        await asyncio.sleep(0)
        return {"name": name, "retry": retry}

    results = []
    call = outcome_of(fn, results=results)
    assert type(call) is HandlerCall
    assert (call.outcome.final, call.outcome.failed, call.error) == (True, False, None)
    assert call.result == {"name": "n", "retry": 0}
    [(id, result)] = results
    assert id.endswith("fn")
    assert result == call.result
    assert result is not call.result


def test_synchronous_functions_are_called_in_a_thread():
    def fn(**_):
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return 1

    assert outcome_of(fn).result == 1


def test_a_call_whose_thread_outlives_the_operator_stays_among_the_running_ones():
    started, release = threading.Event(), threading.Event()

    def fn(**_):
        started.set()
        assert release.wait(30)

    async def main():
        invoker = Invoker(kopf.OperatorSettings(), ExecutorPool())
        task = asyncio.create_task(call_of(fn, invoker=invoker))
        await asyncio.to_thread(started.wait, 30)
        invoker.pool.abandon([task])
        with pytest.raises(asyncio.CancelledError):
            await task
        release.set()
        return [handler.id for handler, _, _ in invoker.running.values()]

    assert asyncio.run(main()) == ["fn"]


def test_a_call_in_a_thread_can_be_closed_without_an_event_loop():
    release = threading.Event()

    def fn(**_):
        assert release.wait(30)

    async def main():
        invoker = Invoker(kopf.OperatorSettings(), ExecutorPool())
        call = call_of(fn, invoker=invoker)
        call.send(None)
        return invoker, call

    invoker, call = asyncio.run(main())
    assert len(invoker.running) == 1
    call.close()
    release.set()
    assert invoker.running == {}


def test_errors_are_outcomes():
    async def fn(**_):
        raise kopf.TemporaryError("later", delay=5)

    call = outcome_of(fn, keep_error=True)
    assert (call.outcome.final, call.outcome.delay, str(call.error)) == (False, 5.0, "later")
    assert outcome_of(fn).error is None


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    code: int


class Speechless(Exception):
    def __str__(self):
        return None


class SilentlyFailing(ValueError):
    def __str__(self):
        raise LookupError

    __repr__ = __str__


class Uninitialised(kopf.TemporaryError):
    def __init__(self):
        pass


UNUSUAL = [
    (Frozen(5), 1, "failed with an exception and will try again in 1 seconds: 5"),
    (Speechless(), 1, "will try again in 1 seconds: Speechless()"),
    (SilentlyFailing(), 1, "will try again in 1 seconds: <SilentlyFailing>"),
    (Uninitialised(), 60, "failed temporarily: Uninitialised()"),
    (kopf.TemporaryError("x", delay="5"), 5, "failed temporarily: x"),
    (
        kopf.TemporaryError("x", delay=datetime.timedelta(minutes=5)),
        60,
        "failed temporarily: x (delay=datetime.timedelta(seconds=300) is not a number of seconds:"
        " the next attempt follows in 60 seconds)",
    ),
]


@pytest.mark.parametrize("error, delay, text", UNUSUAL, ids=[type(error).__name__ for error, _, _ in UNUSUAL])
def test_unusual_errors_are_outcomes_with_a_line(caplog, error, delay, text):
    async def fn(**_):
        raise error

    outcome = outcome_of(fn).outcome
    assert (outcome.failed, outcome.final, outcome.delay) == (True, False, delay)
    [line] = [it for it in caplog.records if it.levelno == logging.ERROR]
    assert line.getMessage().endswith(text)


async def lost(**_):
    raise AssertionError


class Lost:
    async def __call__(self, **_):
        raise AssertionError


def synchronous(**kwargs):
    return lost(**kwargs)


async def forgetful(**kwargs):
    return lost(**kwargs)


def generator(**_):
    yield


async def async_generator(**_):
    yield


@pytest.mark.parametrize(
    "fn, text",
    [
        (synchronous, "has returned a coroutine that nothing awaits: declare the function with `async def`"),
        (forgetful, "has returned a coroutine that nothing awaits: declare the function with `async def`"),
        (Lost(), "Lost() (test_handler_calls.py:"),
        (lambda **_: (it for it in "abc"), "has returned a generator that nothing iterates over"),
        (generator, "remove `yield` from it."),
        (async_generator, "remove `yield` from it."),
    ],
)
@pytest.mark.filterwarnings("error")
def test_functions_whose_code_is_not_executed_have_failed(caplog, fn, text):
    call = outcome_of(fn, results=(results := []), keep_error=True)
    assert (call.outcome.failed, call.outcome.final, results) == (True, False, [])
    assert type(call.error) is TypeError
    assert text in str(call.error) and text in caplog.text
    gc.collect()


@pytest.mark.parametrize("fn", [functools.partial(lambda **_: 1), functools.partial(Lost().__call__)])
def test_partials_are_called_as_their_functions(fn):
    call = outcome_of(fn, keep_error=True)
    assert call.result == 1 or isinstance(call.error, AssertionError)


def test_a_function_is_not_called_beyond_its_limits():
    async def fn(**_):
        raise AssertionError

    call = outcome_of(fn, retries=3, retry=3, keep_error=True)
    assert call.outcome.failed
    assert call.outcome.limit == "retries"
    assert type(call.error).__name__ == "HandlerRetriesError"


def test_what_follows_the_function_is_a_part_of_it():
    async def fn(**_):
        return 1

    async def fine():
        await asyncio.sleep(0)

    async def failing():
        raise kopf.PermanentError("broken")

    call = outcome_of(fn, after_call=fine)
    assert (call.result, call.outcome.failed) == (1, False)
    call = outcome_of(fn, after_call=failing)
    assert (call.result, call.outcome.failed, call.outcome.message) == (None, True, "broken")


@types.coroutine
def old_coroutine():
    yield from asyncio.sleep(0).__await__()
    return 7


class Awaitable:
    def __await__(self):
        return (yield from asyncio.sleep(0, 8).__await__())


@pytest.mark.parametrize("make, result", [(old_coroutine, 7), (Awaitable, 8)])
def test_everything_that_can_be_awaited_is_awaited(make, result):
    async def original(**_):
        raise AssertionError

    def fn(**_):
        return make()

    fn.__wrapped__ = original
    assert outcome_of(fn).result == result


def test_other_results_of_decorated_coroutines_are_errors_of_the_handler():
    async def original(**_):
        raise AssertionError

    def fn(**_):
        return None

    fn.__wrapped__ = original
    assert "can't be used in 'await' expression" in outcome_of(fn).outcome.message


def test_a_stop_iteration_is_an_error_and_no_return():
    async def original(**_):
        raise AssertionError

    def fn(**_):
        raise StopIteration(5)

    fn.__wrapped__ = original
    call = outcome_of(fn)
    assert call.result is None
    assert call.outcome.delay == 1.0


async def waiting(started, **_):
    started.set()
    await asyncio.sleep(1000)


def test_a_cancelled_call_ends_without_an_outcome(caplog):
    async def main():
        started, ended = asyncio.Event(), []

        async def fn(**_):
            await waiting(started)

        task = asyncio.create_task(call_of(fn, ended=ended.append))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        [call] = ended
        assert call.outcome_or_none is None
        with pytest.raises(RuntimeError, match="was cancelled"):
            call.outcome  # noqa: B018
        assert (call.cr_running, call.cr_suspended, call.cr_await) == (False, False, None)

    asyncio.run(main())
    assert "Handler 'fn' is cancelled. Will escalate." in caplog.text


def test_a_call_that_is_cancelled_before_its_first_step_ends_too(caplog):
    async def fn(**_):
        raise AssertionError

    async def main():
        ended = []
        task = asyncio.get_running_loop().create_task(call_of(fn, ended=ended.append))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        [call] = ended
        assert call.outcome_or_none is None

    asyncio.run(main())
    assert caplog.text == ""


def test_a_function_may_suppress_its_cancellation():
    async def fn(**_):
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            return "cleaned"

    async def main():
        ended = []
        task = asyncio.create_task(call_of(fn, ended=ended.append))
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        await task
        assert [call.result for call in ended] == ["cleaned"]

    asyncio.run(main())


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_exits_are_no_outcomes(error):
    ended = []

    async def fn(**_):
        raise error

    async def main():
        call = call_of(fn, ended=ended.append)
        with pytest.raises(error):
            call.send(None)

    asyncio.run(main())
    assert [call.outcome_or_none for call in ended] == [None]


def test_it_is_stepped_as_a_coroutine():
    async def fn(**_):
        return await old_steps()

    @types.coroutine
    def old_steps():
        got = yield "first"
        try:
            yield got
        except KeyError as e:
            got = e
        return got

    async def main():
        call = call_of(fn)
        with pytest.raises(TypeError, match="just-started"):
            call.send(1)
        assert inspect.getcoroutinestate(call) != "CORO_SUSPENDED"
        assert next(call) == "first"
        assert call.send("second") == "second"
        assert inspect.getcoroutinestate(call) == "CORO_SUSPENDED"
        error = KeyError("third")
        with pytest.raises(StopIteration) as stop:
            call.throw(error)
        assert stop.value.value is call
        assert call.result is error
        assert inspect.getcoroutinestate(call) == "CORO_CLOSED"
        with pytest.raises(RuntimeError, match="cannot reuse"):
            call.send(None)
        call.close()

        ended = []
        closed = call_of(fn, ended=ended.append)
        assert next(closed) == "first"
        closed.close()
        closed.close()
        assert ended == [closed]
        assert closed.outcome_or_none is None

    asyncio.run(main())


def test_it_cannot_be_stepped_by_itself():
    errors = []

    async def main():
        async def fn(**_):
            for step in (call.send, call.throw):
                with pytest.raises(ValueError, match="already executing") as error:
                    step(KeyError() if step == call.throw else None)
                errors.append(error.value)
            with pytest.raises(ValueError, match="already executing"):
                call.close()
            assert call.cr_running

        call = call_of(fn)
        await call

    asyncio.run(main())
    assert len(errors) == 2


def test_debuggers_see_the_function():
    async def main():
        started = asyncio.Event()

        async def fn(**_):
            await waiting(started)

        call = call_of(fn)
        task = asyncio.create_task(call)
        await started.wait()
        assert "fn" in repr(task)
        assert __file__ in repr(task)
        [frame] = task.get_stack()
        assert frame.f_code is fn.__code__
        assert call.cr_await.cr_code is fn.__code__
        assert (call.cr_code, call.cr_origin) == (fn.__code__, None)
        assert call.__qualname__.endswith(".fn")
        assert asyncio.iscoroutine(call)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())


def test_scopes_of_anyio_work_in_functions():
    async def fn(**_):
        with anyio.move_on_after(0.01) as scope:
            await anyio.sleep(1000)
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 0)
        return scope.cancelled_caught

    async def main():
        ended = []
        await asyncio.create_task(call_of(fn, ended=ended.append))
        assert [call.result for call in ended] == [True]

    asyncio.run(main())


def test_running_calls_are_listed():
    async def main():
        async def fn(**_):
            [(handler, logger, since)] = invoker.running.values()
            assert handler.fn is fn
            assert logger is LOGGER
            assert since > 0

        registry = kopf.OperatorRegistry()
        kopf.on.event("things", registry=registry)(fn)
        [handler] = resource_handlers(registry)
        invoker = Invoker(kopf.OperatorSettings(), ExecutorPool())
        attempt = Attempt(label="Handler 'fn'", errors="temporary", backoff=1.0, started=0)
        call = await HandlerCall(invoker, PreparedHandler(handler), attempt, {}, LOGGER)
        assert not call.outcome.failed
        assert invoker.running == {}

    asyncio.run(main())


def test_an_abandoned_call_is_collected():
    class Cycle:
        call = None

    async def main():
        cycle = Cycle()
        reference = weakref.ref(cycle)
        loop = asyncio.get_running_loop()

        def begin(kept):
            async def fn(**_):
                await loop.create_future()
                return kept

            # The call has the frame of the function, which has the call.
            kept.call = call_of(fn)
            contextvars.copy_context().run(next, kept.call)  # it sets variables

        begin(cycle)
        del cycle
        gc.collect()
        assert reference() is None

    asyncio.run(main())


def test_the_coroutine_of_a_task_reports_that_it_was_not_begun():
    async def main():
        unbegun, steps = [], []

        async def work():
            steps.append("begun")
            await asyncio.sleep(0)
            steps.append("done")

        task = asyncio.create_task(TaskCoroutine(work(), lambda: unbegun.append(1)))
        await task
        assert (unbegun, steps) == ([], ["begun", "done"])
        task = asyncio.get_running_loop().create_task(TaskCoroutine(work(), lambda: unbegun.append(2)))
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert (unbegun, steps) == ([2], ["begun", "done"])
        coroutine = TaskCoroutine(work(), lambda: unbegun.append(3))
        assert (coroutine.cr_code, coroutine.__qualname__) == (work.__code__, work.__qualname__)
        coroutine.close()
        assert unbegun == [2]

    asyncio.run(main())


def test_messages_that_are_not_unicode_do_not_hide_the_error():
    async def fn(**_):
        raise kopf.PermanentError("bad \udc80")

    outcome = outcome_of(fn).outcome
    assert (outcome.final, outcome.failed, outcome.message) == (True, True, "bad \\udc80")
