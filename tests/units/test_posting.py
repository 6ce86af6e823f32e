"""Kubernetes events between the handlers and the engine: batches, threads, logs, and suppressed events."""

import asyncio
import itertools
import logging
import queue
import threading

import kopf
import pytest
from kopf._runtime import posting
from kopf._runtime.context import context, event_queue_loop_var, event_queue_var, settings_var

BODY = {"apiVersion": "v1", "kind": "K", "metadata": {"name": "n", "uid": "u", "namespace": "ns"}}
REF = {"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u", "namespace": "ns"}


def batches(fn, settings=None):
    """The events passed to the engine when the function is called as a handler."""
    handed = []

    async def main():
        queue = posting.EventQueue(handed.append)
        used = settings if settings is not None else kopf.OperatorSettings()
        loop = asyncio.get_running_loop()
        with context([(settings_var, used), (event_queue_var, queue), (event_queue_loop_var, loop)]):
            await asyncio.to_thread(fn) if getattr(fn, "threaded", False) else fn()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(main())
    return handed


def test_events_of_one_turn_are_handed_over_together_and_as_json():
    def fn():
        kopf.info([BODY, {"kind": "Other"}], reason="R", message="m", backoffs=3)
        kopf.event(BODY, type="T", reason=5, message="bad \udc80", backoffs=itertools.repeat(1))

    [batch] = batches(fn)
    assert batch[:2] == [(REF, "Normal", "R", "m", [3.0]), ({"kind": "Other"}, "Normal", "R", "m", [3.0])]
    assert batch[2][:4] == (REF, "T", "5", "bad ?")
    assert len(batch[2][4]) == posting.MAX_ATTEMPTS


@pytest.mark.contract("engine 13.1")
def test_threads_post_by_the_loop():
    def fn():
        assert threading.current_thread() is not threading.main_thread()
        kopf.warn(BODY, reason="R", message="m", backoffs=())

    fn.threaded = True
    assert batches(fn) == [[(REF, "Warning", "R", "m", [])]]


def test_operators_can_put_their_own_events_into_the_queue():
    def fn():
        event = posting.K8sEvent(ref=REF, type="T", reason="R", message="m")
        event_queue_var.get().put_nowait(event)
        asyncio.run_coroutine_threadsafe(
            event_queue_var.get().put(event._replace(reason="S")), event_queue_loop_var.get()
        )

    assert [event for batch in batches(fn) for event in batch] == [
        (REF, "T", "R", "m", []),
        (REF, "T", "S", "m", []),
    ]


@pytest.mark.contract("api 1.4")
def test_one_bad_event_does_not_stop_the_others(caplog):
    def fn():
        kopf.event(BODY, type="T", reason="bad", message="", backoffs=["soon"])
        kopf.event(BODY, type="T", reason="good", message="", backoffs=())

    assert [event[2] for [event] in batches(fn)] == ["good"]
    assert "Failed to post an event. Ignoring and continuing." in caplog.text


@pytest.mark.contract("engine 13.1")
@pytest.mark.parametrize(
    ("level", "type"),
    [(10, "Debug"), (20, "Normal"), (25, "Warning"), (30, "Warning"), (40, "Error"), (50, "Fatal")],
)
def test_logs_are_posted_by_their_levels(level, type):
    settings = kopf.OperatorSettings()
    settings.posting.loggers, settings.posting.level = True, 0
    record = logging.makeLogRecord({"msg": "a %s", "args": ("text",), "levelno": level})
    record.k8s_ref, record.settings = {**REF, "namespace": None}, settings
    [[event]] = batches(lambda: posting.K8sPoster().handle(record), settings)
    ref = {key: value for key, value in REF.items() if key != "namespace"}
    assert event == (ref, type, "Logging", "a text", [1, 1, 2, 3, 5])


@pytest.mark.parametrize(
    ("setting", "value", "extra"),
    [
        ("enabled", False, {}),
        ("loggers", False, {}),
        ("level", logging.ERROR, {}),
        ("enabled", True, {"k8s_skip": True}),
        ("enabled", True, {"k8s_ref": None}),
        ("enabled", True, {"settings": None}),
    ],
)
def test_some_logs_are_not_posted(setting, value, extra):
    settings = kopf.OperatorSettings()
    settings.posting.loggers = True
    setattr(settings.posting, setting, value)
    record = logging.makeLogRecord({"msg": "m", "levelno": logging.WARNING})
    record.__dict__.update({"k8s_ref": REF, "settings": settings, **extra})
    assert batches(lambda: posting.K8sPoster().handle(record), settings) == []


def test_logs_outside_of_handlers_are_only_logged():
    settings = kopf.OperatorSettings()
    settings.posting.loggers = True
    record = logging.makeLogRecord({"msg": "m", "levelno": logging.WARNING})
    record.k8s_ref, record.settings = REF, settings
    posting.K8sPoster().handle(record)


def test_the_poster_listens_once_and_has_its_old_name():
    with pytest.warns(DeprecationWarning, match="private"):
        from kopf._core.engines.posting import K8sPoster
    handlers = [h for h in logging.getLogger("kopf.objects").handlers if isinstance(h, K8sPoster)]
    assert len(handlers) == 1


@pytest.mark.contract("engine 13.1", "api 1.4")
def test_events_are_gated_and_queued():
    owner = kopf.Body(BODY)
    with pytest.raises(LookupError):
        kopf.info(owner, reason="R")
    settings, items = kopf.OperatorSettings(), queue.Queue()

    async def main():
        loop = asyncio.get_running_loop()
        with context([(settings_var, settings), (event_queue_var, items), (event_queue_loop_var, loop)]):
            kopf.event([owner, [owner]], type="T", reason="R")
            settings.posting.enabled = False
            kopf.info(owner, reason="R")
            kopf.warn(owner, reason="W", message="m", backoffs=1)

    asyncio.run(main())
    posted = [items.get_nowait() for _ in range(items.qsize())]
    assert [(item.type, item.reason) for item in posted] == [("T", "R"), ("T", "R"), ("Warning", "W")]
    assert posted[-1].backoffs == 1
    assert isinstance(posted[0], posting.K8sEvent)
