"""Speculative calls: sent together with a filter command, and made only if the filters accept."""

import asyncio
import contextvars

import kopf
import pytest
from kopf._runtime.bridge import VirtualTime

CHANGE = {"reason": "create", "new": {"spec": {}}}


@pytest.fixture
def play(rig):
    def run(handlers, *steps, **kwargs):
        async def main():
            return await rig(*handlers).play(*steps, **{**CHANGE, **kwargs})

        return asyncio.run(main())[0]

    return run


@pytest.fixture
def calls():
    return []


@pytest.fixture
def create(calls, make_changing):
    async def fn(patch, reason, **_):
        calls.append(reason)
        patch.status["seen"] = True
        return "result"

    return make_changing(fn)


def test_a_foreseen_call_is_made_and_reported(play, calls, create, make_watching):
    async def watch(**_):
        calls.append("event")

    reply = play([make_watching(watch), create], ("watch", [0]), ("then", [1]))
    assert calls == ["event", kopf.Reason.CREATE]
    steps, then = reply.split("then: ")
    assert steps.count("Attempted") == 1 and then.startswith("Some([Attempted")
    assert '"seen": Bool(true)' in then and '"fn": String("result")' in then


def test_functions_of_both_kinds_follow_on_each_other(play, calls, make_watching, make_changing):
    async def coroutine(**_):
        await asyncio.sleep(0)
        calls.append(asyncio.current_task() is not None)

    def function(**_):
        calls.append("function")

    play([make_watching(coroutine), make_changing(function)], ("watch", [0]), ("then", [1]))
    play([make_watching(function), make_changing(coroutine)], ("watch", [0]), ("then", [1]))
    assert calls == [True, "function", "function", True]


@pytest.mark.parametrize("accepts", [True, False])
def test_it_is_made_if_all_filters_accept(play, calls, create, make_changing, accepts):
    async def other(**_):
        pass

    filters = [lambda **_: accepts, lambda **_: True]
    handlers = [create, *(make_changing(other, when=when) for when in filters)]
    reply = play(handlers, ("match", [1, 2]), ("then", [0]))
    assert bool(calls) is accepts
    assert ("then: None" in reply) is not accepts


@pytest.mark.parametrize("touch", ["patch", "function", "result"])
def test_it_is_not_made_if_the_patch_was_modified(play, calls, create, make_watching, touch):
    async def watch(patch, **_):
        if touch == "patch":
            patch.spec["x"] = 1
        elif touch == "function":
            patch.fns.append(lambda body: None)
        else:
            return {"x": 1}

    reply = play([make_watching(watch), create], ("watch", [0]), ("then", [1]))
    assert not calls and "then: None" in reply


def test_it_is_made_if_the_patch_was_only_read(play, calls, create, make_watching):
    async def watch(patch, **_):
        assert not patch

    play([make_watching(watch), create], ("watch", [0]), ("then", [1]))
    assert calls


def test_it_is_not_made_if_time_has_passed(play, calls, create, make_watching):
    time = VirtualTime()
    time.freeze()
    try:

        async def watch(**_):
            before = time.now
            time.leap(before + 1_000_000)
            assert time.now > before

        reply = play([make_watching(watch), create], ("watch", [0]), ("then", [1]))
    finally:
        time.reset()
    assert not calls and "then: None" in reply


def test_an_error_of_a_filter_ends_it_all(play, calls, create, make_changing):
    async def other(**_):
        pass

    def fail(**_):
        raise ValueError("boo")

    reply = play([create, make_changing(other, when=fail)], ("match", [1]), ("then", [0]))
    assert not calls and "ValueError('boo')" in reply and "then: None" in reply


def test_what_event_handlers_set_is_seen_by_those_that_follow(play, make_watching, make_changing):
    var, seen = contextvars.ContextVar("var", default=0), []

    async def watch(**_):
        var.set(1)

    async def create(**_):
        seen.append(var.get())

    play([make_watching(watch), make_changing(create)], ("watch", [0]), ("then", [1]))
    assert seen == [1]
