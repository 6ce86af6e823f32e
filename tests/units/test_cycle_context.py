"""Contexts of cycles: their memory while they wait."""

import pytest
from kopf._intents.settings import OperatorSettings
from kopf._objects.memos import Memo
from kopf._objects.resources import Resource
from kopf._runtime.bridge import Object
from kopf._runtime.cycle_context import CycleContext, InspectedObject
from kopf._runtime.memos import MemoRegistry

TEXT = '{"metadata": {"name": "obj1", "uid": "uid1"}, "spec": {"size": 5}}'


@pytest.fixture
def cycle() -> CycleContext:
    return CycleContext(
        Object.decode(TEXT),
        uid="uid1",
        type="MODIFIED",
        memos=MemoRegistry(Memo()),
        settings=OperatorSettings(),
        indices={},
    )


@pytest.mark.parametrize("keep_change", [True, False])
def test_suspended_cycles_drop_the_event(cycle, keep_change):
    event = cycle.watching_cause().kwargs["event"]
    assert cycle.watching_cause().kwargs["event"] is event
    assert cycle.body["spec"] is event["object"]["spec"]
    cycle.suspend(keep_change=keep_change)
    again = cycle.watching_cause().kwargs["event"]
    assert again == event and again is not event
    assert (
        cycle.body["spec"] is again["object"]["spec"]
        and again["object"]["spec"] is not event["object"]["spec"]
    )


def test_arguments_work_after_the_cycle_was_suspended(cycle):
    kwargs = cycle.watching_cause().kwargs
    cycle.suspend(keep_change=False)
    assert kwargs["spec"] == {"size": 5} and kwargs["body"]["spec"] == {"size": 5}
    assert (kwargs["name"], kwargs["meta"]["uid"]) == ("obj1", "uid1")


def test_inspections_use_known_memos_and_keep_no_others():
    memos = MemoRegistry(Memo(common=1))

    def inspected() -> InspectedObject:
        return InspectedObject(
            Object.decode(TEXT), uid="uid1", memos=memos, settings=OperatorSettings(), indices={}
        )

    assert inspected().memo == {"common": 1} and inspected().memo is not inspected().memo
    reviewed = memos.get_for_review("uid1", ephemeral=False)
    assert inspected().memo is reviewed
    assert memos.get("uid1") is reviewed and inspected().memo is reviewed


def test_deferred_functions_are_kept_per_resource():
    memos = MemoRegistry(Memo())
    one, two = (Resource("example.com", version, "widgets") for version in ("v1", "v2"))
    memos.defer_fns("u", one, [print])
    memos.defer_fns("u", two, [repr])
    assert memos.pop_deferred_fns("u", one) == [print]
    assert memos.pop_deferred_fns("u", one) == []
    assert memos.pop_any_deferred_fns("u") == (two, [repr])
    assert memos.pop_any_deferred_fns("u") == (None, [])
