"""Sub-handlers on a real cluster: each has its own attempts and record, and its parent waits for it."""

import json

import pytest

from tests.support import cluster as kube

PREAMBLE = """
from calls import called
import kopf
"""


def test_subhandlers_made_in_a_loop_succeed_and_leave_only_their_results(operator, shelf):
    operator(
        PREAMBLE
        + """
@kopf.on.create('parcels')
def pack(spec, **_):
    for item in spec['items']:
        @kopf.subhandler(id=item, param=item)
        async def wrap(param, **_):
            return f'wrapped {param}'
    return 'boxed'
"""
    )
    shelf.create("p1", {"items": ["cup", "book"]})
    shelf.wait_until_handled(
        "p1", status={"pack": "boxed", "pack/cup": "wrapped cup", "pack/book": "wrapped book"}
    )


def test_a_failing_subhandler_is_retried_alone(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.on.create('parcels')
async def pack(retry, **_):
    called('pack', retry=retry)

    async def wrap(**_):
        called('wrap')

    async def seal(retry, **_):
        called('seal', retry=retry)
        if retry < 2:
            raise kopf.TemporaryError('no wax', delay=0.2)

    async def stamp(**_):
        called('stamp')
        raise kopf.PermanentError('no stamps')

    fns = {'wrap': wrap, 'seal': seal, 'stamp': stamp}
    await kopf.execute(fns=fns, lifecycle=kopf.lifecycles.all_at_once)
    called('boxed')
"""
    )
    shelf.create("p1")
    run.wait_for_log(r"Creation is processed: 1 succeeded; 0 failed\.")
    body = shelf.wait_until_handled("p1")
    assert [call.details["retry"] for call in run.called("seal")] == [0, 1, 2]
    assert len(run.called("wrap")) == len(run.called("stamp")) == len(run.called("boxed")) == 1
    assert [call.details["retry"] for call in run.called("pack")] == [0, 1, 2]
    assert "status" not in body
    run.wait_for_log(r"DEBUG.*Handler 'pack' has unfinished sub-handlers\. Will retry soon\.", count=2)
    run.wait_for_log(r"ERROR.*Handler 'pack/stamp' failed permanently: no stamps")


def test_records_of_the_family_are_on_the_object_while_it_works(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.on.create('parcels')
def pack(**_):
    @kopf.subhandler(id='box')
    def box(**_):
        @kopf.subhandler(id='lid')
        def lid(spec, **_):
            called('lid')
            if not spec.get('glue'):
                raise kopf.TemporaryError('no glue', delay=0.5)
"""
    )
    shelf.create("p1")
    run.wait_for_call("lid")
    body = shelf.wait("p1", lambda body: "pack.box.lid" in str(kube.progress(body)))
    records = {
        key.removeprefix(kube.PREFIX): json.loads(value)
        for key, value in body["metadata"]["annotations"].items()
    }
    assert records["pack"]["subrefs"] == ["pack/box", "pack/box/lid"]
    assert records["pack.box"]["subrefs"] == ["pack/box/lid"]
    assert records["pack"]["message"] == records["pack.box"]["message"] == "None"
    assert records["pack.box.lid"]["message"] == "no glue"
    shelf.patch("p1", {"spec": {"glue": "much"}})
    body = shelf.wait_until_handled("p1")
    assert not kube.progress(body)


def test_a_killed_operator_goes_on_with_the_unfinished_subhandlers_only(operator, shelf):
    code = (
        PREAMBLE
        + """
import threading

@kopf.on.create('parcels')
def pack(**_):
    @kopf.subhandler(id='one')
    def one(**_):
        called('one')

    @kopf.subhandler(id='two')
    def two(spec, **_):
        called('two')
        threading.Event().wait(spec.get('sleep', 0))
"""
    )
    first = operator(code)
    shelf.create("p1", {"sleep": 60})
    first.wait_for_call("two")
    first.process.kill()
    first.wait_for_exit()
    shelf.patch("p1", {"spec": {"sleep": 0}})
    second = operator(code)
    shelf.wait_until_handled("p1")
    assert (len(second.called("one")), len(second.called("two"))) == (0, 1)


@pytest.mark.contract("engine 7.10")
def test_deletion_purges_the_records_of_an_unfinished_family(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.on.create('parcels')
async def pack(**_):
    @kopf.subhandler(id='never')
    async def never(**_):
        called('never')
        raise kopf.TemporaryError('not yet', delay=60)

@kopf.on.delete('parcels')
async def unpack(patch, **_):
    called('unpack', annotations=dict(patch.meta.annotations))
"""
    )
    shelf.create("p1")
    run.wait_for_call("never")
    shelf.wait("p1", lambda body: "pack.never" in str(kube.progress(body)))
    shelf.delete("p1")
    shelf.wait_until_gone("p1")
    run.wait_for_log(r"Creation is superseded by deletion: 0 succeeded; 0 failed; 1 left to the moment\.")
    seen = run.called("unpack")[0].details["annotations"]
    assert seen[kube.PREFIX + "pack"] is None and seen[kube.PREFIX + "pack.never"] is None


@pytest.mark.contract("api 2.9")
def test_wrong_uses_are_errors_of_the_handler(operator, shelf):
    run = operator(
        PREAMBLE
        + """
def failing(error):
    called(type(error).__name__, text=str(error))

@kopf.on.event('parcels')
async def event(**_):
    try:
        await kopf.execute(fns=[failing])
    except RuntimeError as e:
        failing(e)
    try:
        kopf.register(lambda **_: None, id='x')
    except TypeError as e:
        failing(e)

@kopf.on.create('parcels')
async def create(**_):
    try:
        await kopf.execute(fns=[], handlers=[])
    except TypeError as e:
        failing(e)
    try:
        await kopf.execute(fns=1)
    except ValueError as e:
        failing(e)
    try:
        kopf.subhandler(id='x', field='spec', old=1)(lambda **_: None)
    except TypeError as e:
        failing(e)
    called('done')
"""
    )
    shelf.create("p1")
    run.wait_for_call("done")
    shelf.wait_until_handled("p1")
    texts = [call.details["text"] for call in run.calls if "text" in call.details]
    unsupported = (
        "Sub-handlers of event-handlers are not supported and have no practical use "
        "(there are no retries or state tracking)."
    )
    assert texts[:2] == [
        unsupported,
        "Sub-handlers are only supported for resource-changing handlers.",
    ]
    assert "Only one of the fns, handlers, registry can be passed. Got more." in texts
    assert "fns must be a mapping or an iterable, got <class 'int'>." in texts
    assert "Filters old=/new= can only be used in update handlers." in texts
