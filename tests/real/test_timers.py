"""Timers of objects on a real cluster: schedules, retries, and stopping."""

import pytest

PREAMBLE = """
from calls import called
import kopf
"""


def test_timer_is_called_again_and_again_until_the_deletion(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.timer('parcels', interval=0.2)
def tick(name, patch, retry, stopped, **_):
    called('tick', retry=retry, stopped=bool(stopped))
    patch.status['by'] = name
"""
    )
    shelf.create("p1", {"size": 1})
    run.wait_for_call("tick", count=3)
    body = shelf.wait("p1", lambda body: body.get("status", {}).get("by") == "p1")
    assert body["metadata"]["finalizers"] == ["kopf.zalando.org/KopfFinalizerMarker"]
    shelf.delete("p1")
    shelf.wait_until_gone("p1")
    assert all(call.details == {"retry": 0, "stopped": False} for call in run.calls)
    assert run.stop() == 0


@pytest.mark.contract("engine 9.8")
def test_retries_override_the_interval_and_permanent_errors_do_not_end_it(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.timer('parcels', interval=0.1)
async def tick(retry, **_):
    called('tick', retry=retry)
    if retry == 0:
        raise kopf.TemporaryError('again', delay=0.1)
    raise kopf.PermanentError('no more')
"""
    )
    shelf.create("p1", {"size": 1})
    run.wait_for_call("tick", count=4)
    assert [call.details["retry"] for call in run.calls][:4] == [0, 1, 0, 1]


def test_timer_without_an_interval_is_called_once(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.timer('parcels')
def once(**_):
    called('once')
    return 'done'
"""
    )
    shelf.create("p1", {"size": 1})
    shelf.wait("p1", lambda body: body.get("status", {}).get("once") == "done")
    shelf.wait("p1", lambda body: not body["metadata"].get("finalizers"))
    shelf.patch("p1", {"spec": {"size": 2}})
    shelf.create("p2", {"size": 1})
    run.wait_for_call("once", count=2)
    assert len(run.calls) == 2


def test_idle_timer_is_called_once_after_each_change_and_ends_with_its_object(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.timer('parcels', idle=0.5)
def rest(spec, **_):
    called('rest', size=spec['size'])

@kopf.on.create('parcels')
@kopf.on.update('parcels')
def store(**_):
    pass
"""
    )
    shelf.create("p1", {"size": 1})
    run.wait_for_call("rest")
    shelf.patch("p1", {"spec": {"size": 2}})
    assert run.wait_for_call("rest", count=2).details["size"] == 2
    # In Kopf 1.45, the timer never stops, and the deletion hangs.
    shelf.delete("p1")
    shelf.wait_until_gone("p1")
    assert len(run.calls) == 2
    assert run.stop() == 0


def test_sleeping_timers_do_not_hold_the_exit(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.timer('parcels', interval=1000, initial_delay=0)
def tick(**_):
    called('tick')
"""
    )
    shelf.create("p1", {"size": 1})
    run.wait_for_call("tick")
    shelf.wait("p1", lambda body: body["metadata"].get("finalizers"))
    assert run.stop() == 0
    assert "did not exit in time" not in run.log
