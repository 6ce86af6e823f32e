"""The queue from the engine to Python: its bounds, while Python does not take the items."""

import asyncio
import subprocess
import sys

import pytest

native = pytest.importorskip("kopf._kopf", reason="the native module is not built")

MAX_LOG_RECORDS = 10_000
WARNING = "{} log lines were dropped: the event loop does not take them in time."


@pytest.fixture
def make_engine(rig):
    """Make an engine without a bridge: nothing takes the items."""

    async def make():
        return rig().engine

    return lambda: asyncio.run(make())


def drain(engine):
    """All items of the queue: the texts of log lines, and None for the others."""
    items = []
    while batch := engine.poll():
        items += [getattr(item, "text", None) for item in batch]
    return items


def test_excess_log_lines_are_dropped_and_counted_but_no_tasks(make_engine, text):
    engine = make_engine()
    native.inject(engine, text, [("log", [])], count=MAX_LOG_RECORDS + 7)
    native.inject(engine, text, [("deleted", [])])
    assert engine.pending() == MAX_LOG_RECORDS + 1
    warning, *lines, last = drain(engine)
    assert warning == WARNING.format(7)
    assert len(lines) == MAX_LOG_RECORDS and WARNING.format(7) not in lines
    assert last is None


def test_log_lines_are_taken_again_when_there_is_space(make_engine, text):
    engine = make_engine()
    native.inject(engine, text, [("log", [])], count=MAX_LOG_RECORDS + 1)
    taken = len(engine.poll()) - 1
    native.inject(engine, text, [("log", [])], count=taken + 3)
    warning, *lines = drain(engine)
    assert warning == WARNING.format(3)
    assert len(lines) == MAX_LOG_RECORDS


@pytest.mark.parametrize("before", [True, False])
def test_a_completion_without_a_reply_takes_no_others_along(make_engine, text, before):
    engine = make_engine()
    work = native.inject(engine, text, [("watch", [0])])
    [activation] = engine.poll()
    activation.reply([], None, False, "boo", False)
    bad = object()
    with pytest.raises(TypeError):
        engine.complete([bad, activation] if before else [activation, bad])
    assert [reply["error"] for reply in work.replies()] == ["boo"]


TRACED_BATCH = """
import sys
from kopf import _kopf as native

engine = native.Engine(
    handlers=[], settings={}, lifecycle="asap", namespaces=[], agent="kopf/test", make_resource=dict
)
engine.set_tracing(True)
native.inject(engine, sys.argv[1], [("watch", [0])], count=3, together=True)
activations = engine.poll()
print(len(activations), engine.pending())
del activations
print([line.text.split()[0] for line in engine.poll()])
"""


def test_the_spans_of_a_batch_of_tasks_are_traced_when_they_end(text):
    # In a process: a deadlock on the lock of the queue would block all threads of this one.
    ended = subprocess.run(
        [sys.executable, "-c", TRACED_BATCH, text], timeout=60, check=True, capture_output=True, text=True
    )
    assert ended.stdout == "3 0\n['activation:', 'activation:', 'activation:']\n"
