"""Index functions, called by scripted commands: added and removed entries of indices."""

import asyncio

import pytest
from kopf._intents.causes import IndexingCause
from kopf._intents.handlers import IndexingHandler
from kopf._objects.indices import Indexers
from kopf._runtime.context import cause_var

native = pytest.importorskip("kopf._kopf")

NAMES = ["param", "errors", "timeout", "retries", "backoff", "selector", "labels", "annotations", "when"]
COMMON = dict.fromkeys([*NAMES, "field", "value"])


def indexing(fn, **kwargs):
    return IndexingHandler(**{**COMMON, "id": fn.__name__, "fn": fn, **kwargs})


def play(rig, handlers, *scripts):
    """Play the scripts, one cycle each; get the replies and the indices."""

    async def main():
        played = rig(*handlers)
        indexers = played.indexers
        indexers.ensure([handler.id for handler in handlers])
        replies = [
            await played.play(*script, ("closed", []), cycle=number) for number, script in enumerate(scripts)
        ]
        return [reply for one in replies for reply in one], indexers

    return asyncio.run(main())


def test_embedded_operators_reach_the_index_through_their_indexers():
    indexers = Indexers()
    indexers.ensure(["i"])
    indexers["i"].replace("one", {"x": 1})
    indexers["i"].replace("other", 2)
    assert {key: list(store) for key, store in indexers["i"].index.items()} == {"x": [1], None: [2]}
    indexers["i"].discard("one")
    assert list(indexers["i"].index) == [None]


@pytest.mark.contract("engine 8.2")
@pytest.mark.parametrize("is_async", [False, True])
def test_functions_get_what_handlers_get_and_their_patch_goes_nowhere(rig, is_async):
    seen = {}

    def fn(**kwargs):
        seen.update(kwargs, cause=cause_var.get())
        kwargs["patch"].status["x"] = 1
        return {kwargs["name"]: kwargs["spec"]["field"]}

    async def async_fn(**kwargs):
        await asyncio.sleep(0)
        return fn(**kwargs)

    replies, indexers = play(rig, [indexing(async_fn if is_async else fn, id="i")], [("index", [0])])
    [[settled]] = [step["indexed"] for step in replies[0]["results"]]
    assert settled["final"] and not settled["failed"] and replies[0]["patch"] is None
    assert repr(indexers["i"]) == "{'obj1': ['value']}"
    assert seen["i"] is indexers["i"] and "type" not in seen and "reason" not in seen
    assert type(seen["logger"]).__name__ == "TerseObjectLogger"
    assert isinstance(seen["cause"], IndexingCause)


def test_objects_leave_the_indices_of_those_who_are_not_called_or_fail(rig):
    results = [1, None, ValueError("boo")]

    def fn(**_):
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    for script, left in [
        ([("exclude", [0])], []),
        ([("deleted", []), ("watch", [])], []),
        ([("index", [0])], [1]),
    ]:
        results[:] = [1, None]
        _, indexers = play(rig, [indexing(fn, id="i")], [("index", [0])], script)
        assert [*indexers["i"].get(None, [])] == left, script


@pytest.mark.parametrize("newer", [[("index", [0])], [("exclude", [0])], None])
def test_an_indexing_that_ends_after_a_newer_one_or_a_removal_changes_nothing(rig, text, newer):
    """As at a hand-over to the watch of another version of the resource."""

    async def main():
        has_begun, may_end = asyncio.Event(), asyncio.Event()

        async def fn(spec, **_):
            if spec["field"] == "value":
                has_begun.set()
                await may_end.wait()
            return {spec["field"]: 1}

        def unrelated(**_):
            return 2

        played = rig(indexing(fn, id="i"), indexing(unrelated, id="j"))
        indexers = played.indexers
        indexers.ensure(["i", "j"])
        older = native.inject(played.engine, text, [("index", [0, 1])], cycle=1)
        with played.open():
            await has_begun.wait()
        if newer is None:
            indexers.discard("uid1")
        else:
            changed = text.replace('"field": "value"', '"field": "newer"')
            await played.play(*newer, ("closed", []), text=changed, cycle=2)
        may_end.set()
        replies = []
        with played.open():
            while not (replies := replies + older.replies()):
                await asyncio.sleep(0.001)
        assert replies[0]["error"] is None
        assert repr(indexers["i"]) == ("{'newer': [1]}" if newer == [("index", [0])] else "{}")
        assert repr(indexers["j"]) == ("{}" if newer is None else "{None: [2]}")
        assert not indexers.is_running()

    asyncio.run(main())


def test_filters_decide_and_their_errors_change_nothing(rig):
    answers = [True, ValueError("no idea"), False]

    def when(i, **_):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def fn(**_):
        return 1

    handlers = [indexing(fn, id="i", when=when)]
    replies, indexers = play(rig, handlers, [("index", [0])], [("index", [0])])
    assert replies[1]["error"] == "ValueError('no idea')" and replies[1]["results"] == []
    assert repr(indexers["i"]) == "{None: [1]}"
    answers[:] = [True, False]
    replies, indexers = play(rig, handlers, [("index", [0])], [("index", [0])])
    assert replies[1]["results"] == [{"indexed": [None]}]
    assert not indexers["i"]


def test_functions_of_one_id_fill_one_index_and_the_last_one_wins(rig):
    def first(**_):
        return {"k": 1, "only-first": 1}

    def second(**_):
        return {"k": 2}

    handlers = [indexing(first, id="i"), indexing(second, id="i")]
    _, indexers = play(rig, handlers, [("index", [0, 1])])
    assert repr(indexers["i"]) == "{'k': [2]}"
