"""Sub-handlers in their parent's call: contexts, forms of execution, lifecycles, outcomes."""

import asyncio
import dataclasses
import datetime
import json

import kopf
import pytest
from kopf._intents.registries import ChangingRegistry
from kopf._runtime import context as vars


async def _play(rig, handler, *, text=None, **kwargs):
    one = rig(handler, **kwargs)
    texts = {"text": text} if text is not None else {}
    [reply] = await one.play(("handle", [0]), reason="create", new={"spec": {"a": {"b": 1}}}, **texts)
    return reply


def play(rig, handler, **kwargs):
    return asyncio.run(_play(rig, handler, **kwargs))


def record(reply, name):
    """The progress record of a handler, as it is written to the object."""
    return json.loads(reply["patch"]["metadata"]["annotations"][f"kopf.zalando.org/{name}"])


def test_parents_without_subhandlers_have_no_subrefs(rig, make_changing, outcome):
    async def parent(**_):
        pass

    settled = outcome(play(rig, make_changing(parent)))
    assert settled["final"] and settled["subrefs"] == []


@pytest.mark.parametrize("asynchronous", [False, True])
def test_declared_ones_are_executed_after_the_parent(rig, make_changing, outcome, asynchronous):
    order = []

    def declare():
        order.append("parent")

        @kopf.subhandler(id="sub", param=7)
        async def sub(param, retry, **_):
            # These functions need a task with any kind of parent: timeouts rely on it.
            async with asyncio.timeout(5):
                await asyncio.sleep(0)
            order.append(("sub", param, retry))
            return {"x": 1}

    async def parent(**_):
        declare()

    def sync_parent(**_):
        declare()

    reply = play(rig, make_changing(parent if asynchronous else sync_parent, id="parent"))
    assert order == ["parent", ("sub", 7, 0)]
    assert reply["patch"]["status"]["parent/sub"] == {"x": 1}
    assert outcome(reply)["subrefs"] == ["parent/sub"] and outcome(reply)["final"]
    assert record(reply, "parent.sub")["success"] is True


def test_a_parent_that_raises_executes_nothing(rig, make_changing, outcome):
    def parent(**_):
        kopf.register(lambda **_: pytest.fail("it is called"), id="sub")
        raise kopf.TemporaryError("oops", delay=1)

    settled = outcome(play(rig, make_changing(parent)))
    assert not settled["final"] and settled["subrefs"] == []


def test_unfinished_ones_bring_the_parent_back(rig, make_changing, outcome):
    async def parent(**_):
        @kopf.subhandler(id="a")
        def a(**_):
            raise kopf.TemporaryError("wait", delay=30)

    reply = play(rig, make_changing(parent, retries=1))
    settled = outcome(reply)
    assert not settled["final"] and settled["message"] == "None" and 29 < settled["delay"] <= 30
    assert record(reply, "parent.a")["message"] == "wait"


def test_the_lifecycle_chooses_who_is_called(rig, make_changing, outcome):
    calls = []

    async def parent(**_):
        for id in ("a", "b", "c"):
            kopf.register(lambda id=id, **_: calls.append(id), id=id)

    def last(handlers, *, state, **kwargs):
        calls.append([(handler.id, state[handler.id].retries) for handler in handlers])
        assert kwargs["reason"] == "create"
        assert {one.purpose for one in state.values()} <= {"create"}
        return handlers[-1:]

    reply = play(rig, make_changing(parent), lifecycle=last)
    # It is also called with no handlers, for sub-handlers without sub-handlers.
    assert calls == [[("parent/a", 0), ("parent/b", 0), ("parent/c", 0)], "c", []]
    assert outcome(reply)["delay"] == 0


def test_a_lifecycle_that_selects_no_handler_is_not_called_again_at_once(rig, make_changing, outcome):
    async def parent(**_):
        kopf.register(lambda **_: None, id="a")

    reply = play(rig, make_changing(parent), lifecycle=lambda handlers, **_: [])
    assert outcome(reply)["delay"] == 1


def test_the_state_of_a_lifecycle_has_finished_and_delayed_ones(rig, make_changing, raw):
    seen = {}

    async def parent(**_):
        for id in ("a", "b", "c"):
            kopf.register(lambda **_: None, id=id)

    def look(handlers, *, state, **_):
        seen.update(
            {id: (one.retries, one.finished, one.sleeping, one.awakened) for id, one in state.items()}
        )
        assert [handler.id for handler in handlers] == ["parent/c"]
        error = state["parent/b"]
        assert error.message == "oops" and error.delayed > error.started and error.runtime > one_day
        done = state["parent/a"]
        assert done.success and not done.failure and done.stopped >= done.started
        assert done.purpose == "create" and done.subrefs == ["parent/a/x"] and "retries" in repr(done)
        return []

    one_day = datetime.timedelta(days=1)
    begin = {"started": "2026-01-01T00:00:00.000000+00:00", "purpose": "create"}
    done = {"stopped": begin["started"], "retries": 2, "success": True, "subrefs": ["parent/a/x"]}
    failed = {"delayed": "2999-01-01T00:00:00+00:00", "retries": 1, "message": "oops"}
    raw["metadata"]["annotations"] = {
        "kopf.zalando.org/parent.a": json.dumps(begin | done),
        "kopf.zalando.org/parent.b": json.dumps(begin | failed),
    }
    reply = play(rig, make_changing(parent, id="parent"), lifecycle=look, text=json.dumps(raw))
    assert reply["error"] is None
    assert seen == {
        "parent/a": (2, True, False, False),
        "parent/b": (1, False, True, False),
        "parent/c": (0, False, False, True),
    }


def test_limits_of_sub_handlers_can_be_floats(rig, make_changing, outcome):
    async def parent(**_):
        @kopf.subhandler(id="a", retries=1.0)
        def a(**_):
            raise kopf.TemporaryError("wait", delay=30)

    reply = play(rig, make_changing(parent, id="parent", retries=2.0))
    assert outcome(reply)["final"] and record(reply, "parent.a")["failure"] is True


@pytest.mark.contract("engine 7.10", "api 2.9")
def test_explicit_execution_in_all_forms(rig, make_changing, outcome):
    calls = []
    handlers = [make_changing(lambda **_: calls.append("handler"), id="free")]
    registry = ChangingRegistry()
    registry.append(make_changing(lambda **_: calls.append("registered"), id="registered"))

    def named(**_):
        calls.append("named")

    async def parent(**_):
        await kopf.execute(fns={"x": lambda **_: calls.append("mapped")})
        await kopf.execute(fns=[named])
        await kopf.execute(handlers=handlers)
        await kopf.execute(registry=registry)
        kopf.register(lambda **_: calls.append("declared"), id="d")
        await kopf.execute()
        await kopf.execute()

    reply = play(rig, make_changing(parent))
    assert calls == ["mapped", "named", "handler", "registered", "declared"]
    subrefs = ["free", "parent/d", f"parent/{named.__qualname__}", "parent/x", "registered"]
    assert outcome(reply)["subrefs"] == subrefs


def test_own_cause_and_own_lifecycle(rig, make_changing, outcome):
    seen = []

    def sub(new, spec, **_):
        seen.append((new, dict(spec), vars.sublifecycle_var.get()))

    async def parent(**_):
        cause = dataclasses.replace(vars.cause_var.get(), new="mine")
        lifecycle = kopf.lifecycles.all_at_once
        await kopf.execute(fns={"a": sub, "b": sub}, cause=cause, lifecycle=lifecycle)
        assert vars.sublifecycle_var.get() is kopf.lifecycles.asap

    assert outcome(play(rig, make_changing(parent)))["final"]
    assert [(new, lifecycle) for new, _, lifecycle in seen] == [("mine", kopf.lifecycles.all_at_once)] * 2


def test_fields_are_looked_for_in_what_the_parent_sees(rig, make_changing):
    seen = []

    async def parent(new, diff, **_):
        seen.append((new, diff))

        @kopf.subhandler(id="s", field="b")
        def sub(old, new, diff, **_):
            seen.append((old, new, diff))

        @kopf.subhandler(id="no", field="spec.a.b")
        def no(**_):
            seen.append("no")

    play(rig, make_changing(parent, id="parent/spec.a", field=("spec", "a")))
    assert seen == [({"b": 1}, (("add", (), None, {"b": 1}),)), (None, 1, (("add", (), None, 1),))]


@pytest.mark.contract("engine 0.4")
def test_the_context_of_the_parent_comes_back(rig, make_changing, outcome):
    seen = {}

    def state():
        families = [vars.subregistry_var, vars.subexecuted_var, vars.subrefs_var, vars.sublifecycle_var]
        return [var.get() for var in (vars.cause_var, vars.handler_var, *families)]

    async def parent(**_):
        async def sub(**_):
            seen["sub"] = state()

            @kopf.subhandler(id="deep")
            async def deep(**_):
                seen["deep"] = vars.handler_var.get().id, len(tuple(vars.subrefs_var.get()))

        before = state()
        await kopf.execute(fns={"s": sub})
        assert state() == before
        seen["parent"] = before

    reply = play(rig, make_changing(parent))
    assert seen["deep"] == ("parent/s/deep", 3)
    assert seen["sub"][1].id == "parent/s" and seen["sub"][2] is not seen["parent"][2]
    assert outcome(reply)["subrefs"] == ["parent/s", "parent/s/deep"]


def test_records_on_the_object_are_obeyed_and_malformed_ones_are_not(rig, make_changing, raw, caplog):
    record = {"started": "2026-01-01T00:00:00+00:00", "retries": 3, "success": True}
    raw["metadata"]["annotations"] = {
        "kopf.zalando.org/parent.done": json.dumps(record),
        "kopf.zalando.org/parent.torn": "{",
        "kopf.zalando.org/parent.odd": '{"retries": -1}',
    }
    calls = []

    async def parent(**_):
        for id in ("done", "torn", "odd"):
            kopf.register(lambda id=id, **_: calls.append(id), id=id)
        await kopf.execute(lifecycle=kopf.lifecycles.all_at_once)

    async def main():
        handlers = [make_changing(parent)]
        return await rig(*handlers).play(("handle", [0]), reason="create", new={}, text=json.dumps(raw))

    asyncio.run(main())
    assert calls == ["torn", "odd"]
    assert caplog.text.count("Ignoring the state kept on the object, as it cannot be read") == 2


def test_outside_of_handlers_it_is_a_lookup_error():
    with pytest.raises(LookupError):
        asyncio.run(kopf.execute())
    with pytest.raises(LookupError):
        kopf.register(lambda **_: None, id="x")


def test_cancelled_operators_cancel_subhandlers_of_synchronous_handlers(rig, make_changing):
    cancelled, begun = [], asyncio.Event()

    def parent(**_):
        @kopf.subhandler(id="slow")
        async def slow(**_):
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(True)
                raise

    async def main():
        from kopf._kopf import inject

        one = rig(make_changing(parent))
        text = '{"metadata": {"name": "x", "uid": "u"}}'
        inject(one.engine, text, [("handle", [0])], reason="create", new={})
        with one.open():
            await begun.wait()
            await one.dispatcher.cancel()

    asyncio.run(main())
    assert cancelled == [True]
