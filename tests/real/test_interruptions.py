"""Operators are stopped, killed and started again; objects change meanwhile.

Nothing is lost, and nothing is done twice.
"""

import pytest

from tests.support import cluster as kube

PREAMBLE = """
from calls import called
import kopf
"""

ALL = (
    PREAMBLE
    + """
@kopf.on.create('parcels')
def create(name, **_):
    called('create', name=name)

@kopf.on.update('parcels')
def update(name, diff, **_):
    called('update', name=name, diff=list(map(list, diff)))

@kopf.on.resume('parcels')
def resume(name, **_):
    called('resume', name=name)

@kopf.on.delete('parcels')
def delete(name, **_):
    called('delete', name=name)
"""
)

# Succeeds once the spec allows it; until then, it is retried forever, with a pause that a test can wait for.
PATIENT = (
    PREAMBLE
    + """
@kopf.on.create('parcels')
def before(**_):
    called('before')
    return 'ready'

@kopf.on.create('parcels')
def patient(spec, retry, **_):
    called('patient', retry=retry)
    if not spec.get('open'):
        raise kopf.TemporaryError("still closed", delay=0.5)
    return 'opened'
"""
)


def test_restart_resumes_and_creates_nothing_again(operator, shelf):
    first = operator(ALL)
    shelf.create("p1", {"size": 1})
    shelf.wait_until_handled("p1")
    assert first.stop() == 0
    assert [call.handler for call in first.calls] == ["create"]
    second = operator(ALL)
    second.wait_for_call("resume")
    second.wait_for_log(r"Resuming is processed: 1 succeeded; 0 failed\.")
    shelf.patch("p1", {"spec": {"size": 2}})
    shelf.wait_until_handled("p1")
    assert [call.handler for call in second.calls] == ["resume", "update"]


def test_restart_writes_nothing_to_an_object_with_nothing_to_do(operator, shelf):
    code = "import kopf\n@kopf.on.create('parcels')\n@kopf.on.update('parcels')\ndef fn(**_): pass\n"
    operator(code)
    shelf.create("p1", {"size": 1})
    before = shelf.wait_until_handled("p1")
    operator.started[-1].stop()
    second = operator(code)
    second.wait_for_log(r"\[\S+/p1\] (Something has changed|Handling cycle is finished)")
    shelf.create("p2", {"size": 1})
    shelf.wait_until_handled("p2")
    assert shelf.get("p1")["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


def test_creation_while_the_operator_is_down_is_a_creation(operator, shelf):
    operator(ALL).wait_for_log("Starting the watch-stream for parcels")
    operator.started[-1].stop()
    shelf.create("p1", {"size": 1})
    run = operator(ALL)
    shelf.wait_until_handled("p1")
    assert [call.handler for call in run.calls] == ["create"]


@pytest.mark.contract("engine 3.2")
def test_changes_while_the_operator_is_down_are_one_update_mixed_with_resuming(operator, shelf):
    operator(ALL)
    shelf.create("p1", {"size": 1})
    shelf.wait_until_handled("p1")
    operator.started[-1].stop()
    shelf.patch("p1", {"spec": {"size": 2}})
    shelf.patch("p1", {"spec": {"size": 3}})
    run = operator(ALL)
    shelf.wait_until_handled("p1")
    run.wait_for_log(r"Updating is processed: 2 succeeded; 0 failed\.")
    assert sorted(call.handler for call in run.calls) == ["resume", "update"]
    assert run.called("update")[0].details["diff"] == [["change", ["spec", "size"], 1, 3]]


def test_deletion_while_the_operator_is_down_waits_for_it(operator, shelf):
    operator(ALL)
    shelf.create("p1", {"size": 1})
    shelf.wait_until_handled("p1")
    operator.started[-1].stop()
    shelf.delete("p1")
    assert shelf.get("p1")["metadata"]["deletionTimestamp"]
    run = operator(ALL)
    shelf.wait_until_gone("p1")
    run.wait_for_log(r"Deletion is processed: 1 succeeded; 0 failed\.")
    assert [call.handler for call in run.calls] == ["delete"]


def test_kill_in_a_series_of_retries_continues_the_series(operator, shelf):
    first = operator(PATIENT)
    shelf.create("p1", {"open": False})
    shelf.wait("p1", lambda body: kube.progress(body).get("patient", {}).get("retries", 0) >= 2)
    first.kill()
    done = kube.progress(shelf.get("p1"))["patient"]["retries"]
    second = operator(PATIENT)
    again = second.wait_for_call("patient")
    assert again.details["retry"] == done, "the count continues from the progress on the object"
    shelf.patch("p1", {"spec": {"open": True}})
    shelf.wait_until_handled("p1", status={"before": "ready", "patient": "opened"})
    assert len(first.called("before")) == 1
    assert not second.called("before"), "a finished handler does not run again"


def test_kill_inside_a_handler_runs_that_handler_again(operator, shelf):
    code = (
        PREAMBLE
        + """
import os, threading

@kopf.on.create('parcels')
def hang(retry, **_):
    called('hang', retry=retry)
    if os.environ.get('HANG'):
        threading.Event().wait()
"""
    )
    first = operator(code, environment={"HANG": "yes"})
    shelf.create("p1", {"size": 1})
    first.wait_for_call("hang")
    first.kill()
    second = operator(code)
    shelf.wait_until_handled("p1")
    assert [call.details["retry"] for call in second.called("hang")] == [0]


def test_deletion_while_creation_is_in_progress_ends_the_creation(operator, shelf):
    run = operator(
        PATIENT
        + """
@kopf.on.delete('parcels')
def delete(**_):
    called('delete')
"""
    )
    shelf.create("p1", {"open": False})
    run.wait_for_call("patient", count=2)
    shelf.delete("p1")
    shelf.wait_until_gone("p1")
    run.wait_for_log(r"Creation is superseded by deletion: 1 succeeded; 0 failed; 1 left to the moment\.")
    run.wait_for_log(r"Deletion is processed: 1 succeeded; 0 failed\.")
    assert run.calls[-1].handler == "delete"
    assert len(run.called("delete")) == 1


def test_deletion_with_no_handler_for_it_ends_the_retries(operator, shelf):
    run = operator(PATIENT)
    shelf.create("p1", {"open": False})
    run.wait_for_call("patient", count=2)
    shelf.delete("p1")
    shelf.wait_until_gone("p1")
    run.wait_for_log(r"Deleted, really deleted, and we are notified\.")
    run.check_alive()


@pytest.mark.contract("observed 6")
def test_change_while_creation_is_in_progress_is_still_a_creation(operator, shelf):
    run = operator(
        PATIENT
        + """
@kopf.on.update('parcels')
def update(**_):
    called('update')
""",
        environment={"KOPF_COMPAT": "1.45"},
    )
    shelf.create("p1", {"open": False})
    run.wait_for_call("patient", count=2)
    shelf.patch("p1", {"spec": {"open": True, "more": 1}})
    body = shelf.wait_until_handled("p1")
    assert kube.essence(body)["spec"] == {"open": True, "more": 1}
    assert not run.called("update")
    assert len(run.called("before")) == 1


def test_change_while_a_handler_runs_is_handled_after_it(operator, shelf):
    code = (
        PREAMBLE
        + """
import asyncio, pathlib

@kopf.on.create('parcels')
async def slow(**_):
    called('slow')
    while not pathlib.Path('go').exists():
        await asyncio.sleep(0.05)

@kopf.on.update('parcels')
def update(diff, **_):
    called('update', diff=list(map(list, diff)))
"""
    )
    run = operator(code)
    shelf.create("p1", {"size": 1})
    run.wait_for_call("slow")
    shelf.patch("p1", {"spec": {"size": 2}})
    (operator.folder / "go").touch()
    body = shelf.wait("p1", lambda body: kube.is_settled(body))
    assert kube.essence(body)["spec"] == {"size": 2}
    assert len(run.called("slow")) == 1


def test_deletion_handler_is_retried_across_a_kill(operator, shelf):
    code = (
        PREAMBLE
        + """
import os

@kopf.on.delete('parcels')
def delete(retry, **_):
    called('delete', retry=retry)
    if os.environ.get('CLOSED'):
        raise kopf.TemporaryError("closed", delay=0.5)
"""
    )
    first = operator(code, environment={"CLOSED": "yes"})
    shelf.create("p1", {"size": 1})
    shelf.wait("p1", lambda body: body["metadata"].get("finalizers"))
    shelf.delete("p1")
    shelf.wait("p1", lambda body: kube.progress(body).get("delete", {}).get("retries", 0) >= 1)
    first.kill()
    done = kube.progress(shelf.get("p1"))["delete"]["retries"]
    second = operator(code)
    shelf.wait_until_gone("p1")
    second.wait_for_log(r"Deletion is processed: 1 succeeded; 0 failed\.")
    assert second.called("delete")[0].details["retry"] == done


def test_a_stream_lost_with_the_operator_stopped_by_the_scheduler_is_caught_up(operator, shelf):
    """The process is frozen, as in a paused container, and continues with what it missed."""
    import signal

    run = operator(ALL)
    shelf.create("p1", {"size": 1})
    shelf.wait_until_handled("p1")
    run.process.send_signal(signal.SIGSTOP)
    shelf.patch("p1", {"spec": {"size": 2}})
    shelf.create("p2", {"size": 1})
    run.process.send_signal(signal.SIGCONT)
    shelf.wait_until_handled("p1")
    shelf.wait_until_handled("p2")
    assert sorted((call.handler, call.details["name"]) for call in run.calls) == [
        ("create", "p1"),
        ("create", "p2"),
        ("update", "p1"),
    ]
