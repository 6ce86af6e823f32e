"""Scripted commands of the engine, executed with the handlers of an operator."""

import asyncio
import contextlib
import contextvars
import copy
import dataclasses
import datetime
import json
import logging
import os
import threading
import weakref

import kopf
import pytest
import yaml
from kopf._intents import filters
from kopf._intents.handlers import IndexingHandler
from kopf._runtime.context import cause_var, handler_var


@pytest.mark.contract("engine 0.5", "api 3.1")
def test_async_handlers_get_all_arguments(rig, make_watching, raw, outcome):
    seen, is_shared = {}, []

    async def fn(**kwargs):
        seen.update(kwargs, task=asyncio.current_task(), handler=handler_var.get(), cause=cause_var.get())
        is_shared.append(kwargs["event"]["object"]["spec"] is kwargs["body"]["spec"])
        await asyncio.sleep(0)
        return {"x": 1}

    replies = asyncio.run(_play(rig, [make_watching(fn, param=5)], ("watch", [0])))
    assert outcome(replies[0])["failed"] is False and replies[0]["patch"] == {"status": {"fn": {"x": 1}}}
    assert seen["body"] == raw and seen["spec"] == raw["spec"] and seen["labels"] == {"app": "x"}
    assert (seen["name"], seen["namespace"], seen["uid"]) == ("obj1", "ns1", "uid1")
    assert (seen["param"], seen["retry"], seen["type"]) == (5, 0, "MODIFIED")
    assert seen["started"].tzinfo is not None and seen["runtime"].total_seconds() >= 0
    assert seen["resource"].plural == "kopfexamples" and seen["resource"].subresources == {"status"}
    assert seen["task"] is not None and seen["handler"].param == 5 and seen["cause"].body is seen["body"]
    event = seen["event"]
    assert event["type"] == "MODIFIED" and is_shared == [True]


def test_raw_events_are_dicts(rig, make_watching, raw):
    events = []

    def fn(event, **_):
        events.append(event)

    for look in (
        lambda event: event["object"]["metadata"]["name"] == "obj1",
        lambda event: event.get("object") == raw and event.get("absent", 1) == 1,
        lambda event: set(event) == {"type", "object"} and len(event) == 2,
        lambda event: event == {"type": "MODIFIED", "object": raw},
        lambda event: json.loads(json.dumps(event)) == {"type": "MODIFIED", "object": raw},
        lambda event: {**event} == dict(event) == {"type": "MODIFIED", "object": raw},
        lambda event: copy.deepcopy(event) == {"type": "MODIFIED", "object": raw},
        lambda event: "object" in event and "absent" not in event,
        lambda event: repr(event) == repr({"type": "MODIFIED", "object": raw}),
        lambda event: len(event) == 2 and len(list(event.items())) == 2,
        lambda event: type(event) is dict and type(event["object"]) is dict,
        lambda event: yaml.safe_load(yaml.safe_dump(event)) == {"type": "MODIFIED", "object": raw},
        lambda event: event.copy().pop("object") == raw and event.pop("object") == raw and len(event) == 1,
    ):
        asyncio.run(_play(rig, [make_watching(fn)], ("watch", [0])))
        assert look(events.pop())


@pytest.mark.contract("engine 0.4")
def test_sync_handlers_run_in_threads_with_the_context(rig, make_watching):
    var = contextvars.ContextVar("var")
    seen = {}

    def fn(**_):
        seen.update(thread=threading.current_thread(), var=var.get(None), cause=cause_var.get(None))

    async def main():
        var.set(7)
        return await rig(make_watching(fn)).play(("watch", [0]))

    asyncio.run(main())
    assert seen["thread"] is not threading.main_thread() and seen["var"] == 7 and seen["cause"] is not None


@pytest.mark.contract("api 2.8")
def test_many_sync_handlers_all_return(rig, make_watching):
    async def main():
        return await rig(make_watching(lambda **_: None, id="x")).play(("watch", [0, 0]), count=200)

    assert len(asyncio.run(main())) == 200


@pytest.mark.contract("engine 8.2")
def test_change_handlers_get_the_change_and_share_the_patch(rig, make_changing):
    seen = []

    async def one(patch, old, new, diff, reason, **_):
        patch.spec["one"] = 1
        seen.append((old, new, diff, reason, patch))
        return "result"

    def two(patch, old, new, diff, **_):
        patch.metadata.annotations["two"] = "2"
        seen.append((old, new, diff, patch))

    old, new = {"spec": {"a": {"x": 1}}}, {"spec": {"a": {"x": 2}}}
    handlers = [make_changing(one), make_changing(two, id="two/spec.a", field=("spec", "a"))]
    replies = asyncio.run(_play(rig, handlers, ("handle", [0, 1]), reason="update", old=old, new=new))
    assert seen[0][:2] == (old, new) and seen[0][3] is kopf_reason("update")
    assert seen[0][2] == (("change", ("spec", "a", "x"), 1, 2),)
    assert seen[1][:2] == ({"x": 1}, {"x": 2}) and seen[1][2] == (("change", ("x",), 1, 2),)
    assert seen[0][-1] is seen[1][-1]
    assert replies[0]["patch"] == {
        "spec": {"one": 1},
        "metadata": {"annotations": {"two": "2"}},
        "status": {"one": "result"},
    }


def kopf_reason(text):
    from kopf._objects.reasons import Reason

    return Reason(text)


@pytest.mark.contract("api 3.5")
def test_the_diff_has_the_very_values_of_the_essences(rig, make_changing):
    seen = {}

    def fn(**kwargs):
        seen.update(kwargs)

    asyncio.run(_play(rig, [make_changing(fn)], ("handle", [0]), reason="create", new={"spec": {"x": {}}}))
    assert seen["old"] is None and seen["diff"] == (("add", (), None, {"spec": {"x": {}}}),)
    assert seen["diff"][0].new is seen["new"] and isinstance(seen["diff"], kopf.Diff)


@pytest.mark.parametrize(
    ("error", "expected", "text", "level"),
    [
        (kopf.TemporaryError("boo", delay=5), (False, True, 5), "failed temporarily: boo", 40),
        (kopf.PermanentError("boo"), (True, True, None), "failed permanently: boo", 40),
        (ValueError("boo"), (False, True, 60), "will try again in 60 seconds: boo", 40),
        (ValueError(), (False, True, 60), "will try again in 60 seconds: ValueError()", 40),
        (KeyError("boo"), (False, True, 60), "will try again in 60 seconds: KeyError: 'boo'", 40),
        (None, (True, False, None), "succeeded.", 20),
    ],
)
def test_errors_are_settled_and_logged(rig, make_changing, outcome, caplog, error, expected, text, level):
    async def fn(**_):
        if error is not None:
            raise error

    with caplog.at_level(logging.DEBUG):
        replies = asyncio.run(_play(rig, [make_changing(fn)], ("handle", [0]), reason="create", new={}))
    result = outcome(replies[0])
    assert (result["final"], result["failed"], result["delay"]) == expected
    records = [record for record in caplog.records if record.name == "kopf.objects"]
    assert records[0].getMessage() == "Handler 'h0' is invoked." and records[0].levelno == 10
    assert text in records[1].getMessage() and records[1].levelno == level
    assert records[1].k8s_ref["name"] == "obj1"
    assert (records[1].exc_info is not None) == isinstance(error, (ValueError, KeyError))
    assert result["message"] == (None if error is None else str(error))


class Panic(BaseException):
    """An error that is no `Exception`, such as a panic of another extension."""


@pytest.mark.parametrize("form", ["sync", "async"])
def test_errors_that_are_no_exceptions_are_settled_and_logged_too(rig, make_changing, outcome, caplog, form):
    def sync(**_):
        raise Panic("boo")

    async def coroutine(**_):
        await asyncio.sleep(0)
        raise Panic("boo")

    handler = make_changing(sync if form == "sync" else coroutine, id="fn")
    [reply] = asyncio.run(_play(rig, [handler], ("handle", [0]), reason="create", new={}))
    assert outcome(reply)["failed"] and not outcome(reply)["final"]
    record = caplog.records[-1]
    assert "failed with an exception and will try again in 60 seconds: boo" in record.getMessage()
    assert record.exc_info[0] is Panic


def test_the_key_alone_is_logged_in_kopf_1_45(rig, make_changing, outcome, caplog, monkeypatch):
    def fn(**_):
        return {}["boo"]

    monkeypatch.setenv("KOPF_COMPAT", "1.45")
    replies = asyncio.run(_play(rig, [make_changing(fn)], ("handle", [0]), reason="create", new={}))
    assert "will try again in 60 seconds: 'boo'" in caplog.text
    assert outcome(replies[0])["message"] == "'boo'"


def test_limits_are_checked_before_the_call(rig, make_changing, outcome):
    calls = []
    handlers = [make_changing(lambda **_: calls.append(1), id="fn")]
    steps = ("handle", [0])
    replies = asyncio.run(_play(rig, handlers, steps, reason="create", new={}, retries=3, retry=3))
    assert not calls and "has exceeded 3 retries" in outcome(replies[0])["message"]


class Model:
    """A value that is not JSON, such as a model of some library."""


@pytest.mark.contract("engine 7.6")
@pytest.mark.parametrize(
    ("result", "kind", "problem"),
    [
        ({"x": Model()}, "dict", "Object of type Model is not JSON serializable (at x)"),
        (Model(), f"{__name__}.Model", "Object of type Model is not JSON serializable"),
        (b"bytes", "bytes", "Object of type bytes is not JSON serializable"),
        ({1}, "set", "Object of type set is not JSON serializable"),
        (datetime.date(2020, 1, 1), "datetime.date", "Object of type date is not JSON serializable"),
        ([float("nan")], "list", "Infinities and NaN are not JSON (at [0])"),
        (10**400, "int", "Integers beyond the range of floats are not JSON"),
    ],
)
@pytest.mark.parametrize("form", ["async", "sync", "event"])
def test_results_that_are_not_json_are_dropped_with_an_advice(
    rig, make_changing, make_watching, outcome, caplog, form, result, kind, problem
):
    async def fn(**_):
        return result

    handler = make_changing((lambda **_: result) if form == "sync" else fn, id="fn")
    if form == "event":
        replies = asyncio.run(_play(rig, [make_watching(fn)], ("watch", [0])))
    else:
        replies = asyncio.run(_play(rig, [handler], ("handle", [0]), reason="create", new={}))
    settled = outcome(replies[0])
    assert settled["final"] and not settled["failed"] and replies[0]["patch"] is None
    record = caplog.records[-1]
    assert record.levelno == logging.ERROR and record.k8s_ref["name"] == "obj1"
    assert record.getMessage() == (
        f"Handler 'fn' has returned a result of type {kind}, which is not stored in the status of the"
        f" object: {problem}."
        f" Return nothing, or a dict of JSON types, e.g. model.model_dump(mode='json')."
    )


def test_patches_that_are_not_json_are_errors_of_the_cycle(rig, make_changing, caplog):
    async def fn(patch, **_):
        patch.spec["x"] = object()

    async def main():
        made = rig(make_changing(fn))
        replies = await made.play(("handle", [0]), reason="create", new={})
        await made.play(("log", []))
        return replies

    with caplog.at_level(logging.DEBUG):
        replies = asyncio.run(main())
    assert replies[0]["patch"] is None and "not JSON serializable (at spec.x)" in replies[0]["error"]
    line = next(record for record in caplog.records if record.getMessage() == "A line.")
    assert line.exc_info is not None and line.exc_info[0] is TypeError and line.k8s_skip is False


@pytest.mark.contract("engine 5.6")
@pytest.mark.parametrize("error", [ValueError("boo"), Panic("boo")])
def test_filters_are_asked_and_their_errors_end_the_cycle(rig, make_watching, make_changing, error):
    def fn(**_):
        pass

    def asked(value, name, **_):
        return value == "x" and name == "obj1"

    def broken(**_):
        raise error

    handlers = [
        make_watching(fn, labels={"app": asked}),
        make_watching(fn, labels={"app": filters.PRESENT}, when=lambda **_: False),
        make_watching(fn, when=broken),
    ]
    replies = asyncio.run(_play(rig, handlers, ("guarded", [0, 1])))
    assert [list(step) for step in replies[0]["results"]] == [["attempted"], ["skipped"]]
    replies = asyncio.run(_play(rig, handlers, ("guarded", [2])))
    assert replies[0]["error"] == repr(error)


@pytest.mark.contract("engine 5.6")
def test_change_filters_answer_both_questions(rig, make_changing):
    def fn(**_):
        pass

    handlers = [
        make_changing(fn, field=("spec", "x"), old=lambda value, **_: value == 1, new=2),
        make_changing(fn, field=("spec", "x"), field_needs_change=True, value=lambda value, **_: value == 2),
        make_changing(fn, field=("spec", "x"), old=5, when=lambda reason, **_: reason == "update"),
        make_changing(fn, when=lambda **_: False),
    ]
    old, new = {"spec": {"x": 1}}, {"spec": {"x": 2}}
    replies = asyncio.run(_play(rig, handlers, ("filter", [0, 1, 2, 3]), reason="update", old=old, new=new))
    # Whether all filters match except those of the old and the new value, and whether all match.
    pairs = [[True, True], [True, True], [True, False], [False, False]]
    assert replies[0]["results"] == [{"filtered": pairs}]


@pytest.mark.contract("api 1.6")
def test_lifecycles_of_users_pick(rig, make_changing):
    def last(handlers, *, name, **_):
        assert name == "obj1"
        return handlers[-1:]

    handlers = [make_changing(print, id="a"), make_changing(print, id="b")]
    replies = asyncio.run(_play(rig, handlers, ("select", [0, 1]), lifecycle=last, reason="create", new={}))
    assert replies[0]["results"] == [{"selected": [1]}]


@pytest.mark.parametrize("retries", [1, 1.0])
def test_lifecycles_may_return_copies_with_other_options(rig, make_changing, outcome, caplog, retries):
    called = []

    async def declared(**_):
        called.append("declared")

    async def other(param, **_):
        called.append(param)
        raise kopf.TemporaryError("again")

    def replace(handlers, **_):
        return [dataclasses.replace(handlers[1], fn=other, param="copy", retries=retries)] * 2

    async def main():
        made = rig(make_changing(print, id="a"), make_changing(declared, id="b"), lifecycle=replace)
        picked = await made.play(("select", [0, 1]), reason="create", new={})
        return [*picked, *await made.play(("handle", [1]), reason="create", new={})]

    replies = asyncio.run(main())
    assert replies[0]["results"] == [{"selected": [1]}] and called == ["copy"]
    settled = outcome(replies[1])
    assert settled["final"] and settled["failed"] and "will exceed 1 retries" in caplog.text


def test_handlers_that_a_lifecycle_was_not_given_are_errors(rig, make_changing):
    foreign = make_changing(print, id="foreign")

    def select_handlers(handlers, **_):
        return [foreign]

    handlers = [make_changing(print, id="a"), make_changing(print, id="b")]
    replies = asyncio.run(
        _play(rig, handlers, ("select", [0, 1]), lifecycle=select_handlers, reason="create", new={})
    )
    error = "select_handlers has returned Handler 'foreign', which is not one of the handlers that it got"
    assert error in replies[0]["error"] and "('a', 'b')" in replies[0]["error"]


def test_functions_of_the_patch_are_applied_and_kept(rig, make_watching):
    async def fn(patch, **_):
        if not patch.fns:
            patch.fns.append(lambda body: body["spec"].update(added=1))

    async def main():
        made = rig(make_watching(fn))
        first = await made.play(("watch", [0]), cycle=1)
        done = await made.play(("transform", []), cycle=1)
        await made.play(("keep_fns", []), cycle=1)
        again = await made.play(("transform", []), cycle=2)
        return first, done, again

    first, done, again = asyncio.run(main())
    assert first[0]["fns"] is True
    assert json.loads(done[0])["spec"]["added"] == 1 and json.loads(again[0])["spec"]["added"] == 1


def test_functions_of_an_earlier_cycle_are_kept_when_the_next_one_fails(rig, make_changing):
    def fn(patch, **_):
        patch.fns.append(lambda body: body["spec"].update(added=body["spec"].get("added", 0) + 1))

    def fail(**_):
        raise RuntimeError("boo")

    async def main():
        made = rig(make_changing(fn), make_changing(fn, id="failing", when=fail))
        await made.play(("handle", [0]), cycle=1, reason="create", new={})
        await made.play(("keep_fns", []), cycle=1)
        failed = await made.play(
            ("handle", [0]), ("filter", [1]), cycle=2, reason="create", new={}, remaining_fns=True
        )
        await made.play(("keep_fns", []), cycle=2)
        return failed, await made.play(("transform", []), cycle=3)

    failed, again = asyncio.run(main())
    assert "boo" in failed[0]["error"]
    assert json.loads(again[0])["spec"]["added"] == 1


@pytest.mark.parametrize("remaining", [True, False])
def test_functions_of_an_earlier_cycle_are_dropped_if_the_engine_awaits_none(rig, make_watching, remaining):
    async def fn(patch, **_):
        patch.fns.append(lambda body: body["spec"].update(added=body["spec"].get("added", 0) + 1))

    async def main():
        made = rig(make_watching(fn))
        await made.play(("watch", [0]), cycle=1)
        await made.play(("keep_fns", []), cycle=1)
        await made.play(("watch", [0]), cycle=2, remaining_fns=remaining)
        return await made.play(("transform", []), cycle=2)

    [text] = asyncio.run(main())
    assert json.loads(text)["spec"]["added"] == (2 if remaining else 1)


@pytest.mark.contract("engine 11")
def test_memos_live_as_long_as_objects(rig, make_watching):
    seen = []

    async def fn(memo, **_):
        memo.count = memo.get("count", 0) + 1
        seen.append((memo.count, memo.common))

    async def main():
        made = rig(make_watching(fn), memo=kopf.Memo(common=[]))
        await made.play(("watch", [0]), cycle=1)
        await made.play(("watch", [0]), cycle=2)
        await made.play(("deleted", []))
        await made.play(("watch", [0]), cycle=3)

    asyncio.run(main())
    assert [count for count, _ in seen] == [1, 2, 1] and seen[0][1] is seen[2][1]


@pytest.mark.contract("api 2.8")
def test_cancelled_cycles_are_cancelled(rig, make_watching, caplog):
    async def main():
        started, ended = asyncio.Event(), asyncio.Event()

        async def fn(**_):
            started.set()
            try:
                await asyncio.sleep(1000)
            finally:
                ended.set()

        made = rig(make_watching(fn))
        native = pytest.importorskip("kopf._kopf")
        native.inject(made.engine, '{"metadata": {"uid": "u"}}', [("watch", [0])])
        async with asyncio.timeout(30):
            with made.open():
                await started.wait()
                native.inject(made.engine, '{"metadata": {}}', [("cancel", [])])
                await ended.wait()
                await made.dispatcher.cancel()

    asyncio.run(main())
    assert "Handler 'h0' is cancelled. Will escalate." in caplog.text


def _indexing(fn):
    names = ["param", "errors", "timeout", "retries", "backoff", "selector", "labels", "annotations", "when"]
    return IndexingHandler(**dict.fromkeys([*names, "field", "value"]), id=fn.__name__, fn=fn)


@pytest.mark.parametrize("step", ["watch", "handle", "index"])
def test_the_handler_whose_call_is_cancelled_is_reported(rig, make_watching, make_changing, step):
    make = {"watch": make_watching, "handle": make_changing, "index": _indexing}[step]

    async def main():
        started = asyncio.Event()

        async def first(**_):
            pass

        async def second(**_):
            started.set()
            await asyncio.sleep(1000)

        made = rig(make(first), make(second))
        native = pytest.importorskip("kopf._kopf")
        native.inject(made.engine, '{"metadata": {"uid": "u"}}', [(step, [0, 1])], reason="create")
        async with asyncio.timeout(30):
            with made.open():
                await started.wait()
                work = native.inject(made.engine, '{"metadata": {}}', [("cancel", [])])
                while (cancelled := work.cancelled()) is None:
                    await asyncio.sleep(0.001)
                await made.dispatcher.cancel()
        return cancelled

    assert asyncio.run(main()) == 1


def test_no_handler_follows_one_that_suppresses_its_cancellation(rig, make_watching):
    called = []

    async def main():
        started = asyncio.Event()

        async def first(**_):
            started.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(1000)
            called.append("first")

        async def second(**_):
            called.append("second")

        made = rig(make_watching(first), make_watching(second))
        native = pytest.importorskip("kopf._kopf")
        native.inject(made.engine, '{"metadata": {"uid": "u"}}', [("watch", [0, 1])])
        async with asyncio.timeout(30):
            with made.open():
                await started.wait()
                await made.dispatcher.cancel()

    asyncio.run(main())
    assert called == ["first"]


@pytest.mark.contract("engine 0.5")
def test_cancellation_waits_for_threads(rig, make_watching):
    release, ended = threading.Event(), []

    async def mixed(**_):
        pass

    async def main():
        loop, started = asyncio.get_running_loop(), asyncio.Event()

        def fn(**_):
            loop.call_soon_threadsafe(started.set)
            release.wait(30)
            ended.append(1)

        made = rig(make_watching(mixed), make_watching(fn))
        native = pytest.importorskip("kopf._kopf")
        native.inject(made.engine, '{"metadata": {"uid": "u"}}', [("watch", [0, 1])])
        async with asyncio.timeout(30):
            with made.open():
                await started.wait()
                cancellation = loop.create_task(made.dispatcher.cancel())
                for _ in range(10):
                    await asyncio.sleep(0)
                assert not cancellation.done()
                release.set()
                await cancellation
                assert ended

    asyncio.run(main())


async def _play(rig, handlers, *steps, lifecycle=None, **kwargs):
    made = rig(*handlers, **({"lifecycle": lifecycle} if lifecycle is not None else {}))
    return await made.play(*steps, **kwargs)


def test_forks_are_rejected_with_advice(rig, make_watching):
    async def main():
        made = rig(make_watching(print))
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                made.engine.poll()
            except RuntimeError as e:
                os.write(writing, str(e).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        os.close(writing)
        with os.fdopen(reading) as file:
            return file.read()

    text = asyncio.run(main())
    assert "cannot be used in its fork" in text and "'spawn' or 'forkserver'" in text


@pytest.mark.parametrize("result", [{"x": 1}, None], ids=["with a patch", "without a patch"])
def test_arguments_are_dropped_after_the_handlers(rig, make_changing, result):
    seen = []

    async def fn(spec, **_):
        seen.append(weakref.ref(spec))
        return result

    async def main():
        handlers = rig(make_changing(fn))
        await handlers.play(("handle", [0]), reason="create")
        return seen[0]()

    assert asyncio.run(main()) is None
