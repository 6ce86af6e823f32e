"""Values that refer to their own object are garbage-collected."""

import asyncio
import gc
import weakref

import pytest

_kopf = pytest.importorskip("kopf._kopf")


class Marker:
    """An object whose end can be seen."""


def _in_a_stanza(obj, marker):
    obj["spec"].update(own=obj, marker=marker)


def _in_a_part(obj, marker):
    obj._get_path(("metadata",), "labels").update(own=obj, marker=marker)


@pytest.mark.parametrize("store", [_in_a_stanza, _in_a_part])
def test_an_object_stored_in_itself_is_collected(text, store):
    obj, marker = _kopf.Object.decode(text), Marker()
    store(obj, marker)
    reference = weakref.ref(marker)
    del obj, marker
    gc.collect()
    assert reference() is None


def _all_arguments(kwargs):
    return kwargs


def _an_exception(kwargs):
    try:
        raise ValueError
    except ValueError as error:
        return error


@pytest.mark.parametrize("make", [_all_arguments, _an_exception])
@pytest.mark.parametrize("into", ["body", "new"])
def test_arguments_stored_in_arguments_are_collected(rig, make_changing, make, into):
    references = []

    async def fn(**kwargs):
        marker = Marker()
        references.append(weakref.ref(marker))
        target = kwargs["body"]["spec"] if into == "body" else kwargs["new"]
        target.update(own=make(kwargs), arguments=kwargs, marker=marker)

    async def play():
        change = {"reason": "update", "old": {"spec": {"x": 1}}, "new": {"spec": {"x": 2}}}
        await rig(make_changing(fn)).play(("handle", [0]), **change)

    asyncio.run(play())
    gc.collect()
    assert [reference() for reference in references] == [None]
