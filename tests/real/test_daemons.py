"""Daemons of objects on a real cluster: start, arguments, stopping, cancellation."""

import pytest

PREAMBLE = """
import asyncio
import threading
from calls import called
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.background.cancellation_polling = 60
"""

PATIENT = (
    PREAMBLE
    + """
@kopf.daemon('parcels')
async def patient(stopped, name, **_):
    called('started', name=name)
    await stopped.wait()
    called('stopped', name=name, reason=str(stopped.reason))
"""
)


def test_a_daemon_runs_as_long_as_its_object_exists(operator, shelf):
    run = operator(PATIENT)
    shelf.create("p1", {"size": 1})
    run.wait_for_call("started")
    shelf.patch("p1", {"spec": {"size": 2}})
    shelf.wait("p1", lambda body: body["metadata"].get("finalizers"))
    shelf.delete("p1")
    shelf.wait_until_gone("p1")
    assert [call.handler for call in run.calls] == ["started", "stopped"]
    assert "RESOURCE_DELETED" in run.called("stopped")[0].details["reason"]
    run.wait_for_log("Daemon 'patient' has exited on request and will not be retried or restarted.")
    assert run.stop() == 0


def test_daemon_is_started_again_by_the_next_operator(operator, shelf):
    first = operator(PATIENT)
    shelf.create("p1", {"size": 1})
    first.wait_for_call("started")
    assert first.stop() == 0
    assert "OPERATOR_EXITING" in first.called("stopped")[0].details["reason"]
    assert "did not exit in time" not in first.log
    second = operator(PATIENT)
    second.wait_for_call("started")
    assert second.stop() == 0


@pytest.mark.contract("engine 9.6")
def test_daemon_that_returns_is_not_started_again_and_holds_nothing(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.daemon('parcels')
def short(name, patch, **_):
    called('short')
    patch.status['seen'] = name
    return {'done': True}
"""
    )
    shelf.create("p1", {"size": 1})
    body = shelf.wait("p1", lambda body: "seen" in body.get("status", {}))
    assert body["status"]["short"] == {"done": True}
    # It goes by itself: nothing else needs it, and nothing else happens to the object.
    shelf.wait("p1", lambda body: not body["metadata"].get("finalizers"))
    shelf.patch("p1", {"spec": {"size": 2}})
    shelf.create("p2", {"size": 1})
    run.wait_for_call("short", count=2)
    assert len(run.calls) == 2
    assert "Daemon 'short' has exited on its own and will not be retried or restarted." in run.log


@pytest.mark.contract("engine 5.7")
def test_daemon_follows_its_filters(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.daemon('parcels', annotations={'watched': 'yes'})
async def watch(stopped, **_):
    called('started')
    await stopped.wait()
    called('stopped', reason=str(stopped.reason))
"""
    )
    shelf.create("p1", {"size": 1})
    shelf.patch("p1", {"metadata": {"annotations": {"watched": "yes"}}})
    run.wait_for_call("started")
    shelf.patch("p1", {"metadata": {"annotations": {"watched": None}}})
    assert "FILTERS_MISMATCH" in run.wait_for_call("stopped").details["reason"]
    shelf.wait("p1", lambda body: not body["metadata"].get("finalizers"))
    shelf.patch("p1", {"metadata": {"annotations": {"watched": "yes"}}})
    run.wait_for_call("started", count=2)


def test_deletion_waits_for_a_thread_and_not_for_the_next_look(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.daemon('parcels')
def slow(stopped, patch, **_):
    called('started')
    stopped.wait()
    threading.Event().wait(0.5)
    patch.metadata.annotations['left'] = 'behind'
    called('stopped')
"""
    )
    shelf.create("p1", {"size": 1}, finalizers=["testing.kopf.dev/mine"])
    run.wait_for_call("started")
    shelf.wait("p1", lambda body: len(body["metadata"]["finalizers"]) == 2)
    shelf.delete("p1")
    # Polling is every 60 seconds; this waits for less.
    body = shelf.wait("p1", lambda body: body["metadata"]["finalizers"] == ["testing.kopf.dev/mine"])
    assert body["metadata"]["annotations"]["left"] == "behind"
    assert "Daemon 'slow' is still exiting. The next check is in 60 seconds." in run.log


@pytest.mark.contract("engine 9.4")
def test_stubborn_daemons_are_cancelled_and_abandoned(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.daemon('parcels', cancellation_backoff=0.2, cancellation_timeout=0.2)
async def stubborn(stopped, **_):
    called('started')
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            called('cancelled', reason=str(stopped.reason))
            if kopf.DaemonStoppingReason.OPERATOR_EXITING in stopped.reason:
                raise
"""
    )
    shelf.create("p1", {"size": 1})
    run.wait_for_call("started")
    shelf.wait("p1", lambda body: body["metadata"].get("finalizers"))
    shelf.delete("p1")
    shelf.wait_until_gone("p1")
    run.wait_for_log("Daemon 'stubborn' is signalled to exit gracefully")
    run.wait_for_log("Daemon 'stubborn' is signalled to exit by force")
    run.wait_for_log("Daemon 'stubborn' did not exit in time. Leaving it orphaned.")
    reason = run.called("cancelled")[0].details["reason"]
    assert "DAEMON_SIGNALLED" in reason and "DAEMON_CANCELLED" in reason


def test_daemon_sees_the_newest_state_and_shares_it_with_other_handlers(operator, shelf):
    run = operator(
        PREAMBLE
        + """
bodies = {}

@kopf.daemon('parcels')
async def follow(stopped, body, spec, uid, **_):
    bodies[uid] = body
    called('follow', size=spec['size'])
    while not stopped and spec['size'] == 1:
        await stopped.wait(0.05)
    called('follow', size=spec['size'])

@kopf.on.update('parcels')
def update(body, uid, **_):
    called('update', same=body is bodies[uid])
"""
    )
    shelf.create("p1", {"size": 1})
    run.wait_for_call("follow")
    # The update is one only after the creation is stored.
    shelf.wait_until_handled("p1")
    shelf.patch("p1", {"spec": {"size": 2}})
    assert run.wait_for_call("follow", count=2).details["size"] == 2
    assert run.wait_for_call("update").details["same"]


@pytest.mark.contract("engine 9.7")
def test_errors_are_retried_and_a_failed_daemon_is_left_alone(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.daemon('parcels', retries=3, backoff=0.1)
async def failing(retry, patch, **_):
    called('failing', retry=retry)
    patch.metadata.annotations['retry'] = str(retry)
    raise ValueError('boo')
"""
    )
    shelf.create("p1", {"size": 1})
    run.wait_for_call("failing", count=3)
    shelf.wait("p1", lambda body: body["metadata"].get("annotations", {}).get("retry") == "2")
    shelf.wait("p1", lambda body: not body["metadata"].get("finalizers"))
    assert [call.details["retry"] for call in run.calls] == [0, 1, 2]
    assert "Daemon 'failing' failed with an exception and will try again in 0.1 seconds: boo" in run.log


@pytest.mark.contract("engine 8.4")
def test_conflicting_functions_of_a_patch_are_carried_to_the_next_attempt(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.daemon('parcels')
async def editing(retry, patch, body, **_):
    called('editing', carried=len(patch.fns))
    if retry == 0:
        def edit(raw):
            raw.setdefault('metadata', {}).setdefault('annotations', {})['edited'] = 'yes'
        patch.fns.append(edit)
        raise kopf.TemporaryError('again', delay=0.1)
"""
    )
    shelf.create("p1", {"size": 1})
    run.wait_for_call("editing", count=2)
    shelf.wait("p1", lambda body: body["metadata"].get("annotations", {}).get("edited") == "yes")


def test_initial_delays_may_be_functions_and_their_errors_are_seen(operator, shelf):
    run = operator(
        PREAMBLE
        + """
def delay(spec, **kwargs):
    called('delay', stopped='stopped' in kwargs)
    return spec['delay']

@kopf.daemon('parcels', initial_delay=delay)
async def late(**_):
    called('late')
"""
    )
    shelf.create("p1", {"size": 1, "delay": 0.1})
    run.wait_for_call("late")
    assert run.called("delay")[0].details == {"stopped": False}
    shelf.create("p2", {"size": 1})
    run.wait_for_log("Daemon 'late' cannot compute its initial delay, and ends: ")
    shelf.create("p3", {"size": 1, "delay": 1000})
    run.wait_for_call("delay", count=3)
    shelf.wait("p3", lambda body: body["metadata"].get("finalizers"))
    shelf.delete("p3")
    shelf.wait_until_gone("p3")
    assert len(run.called("late")) == 1
