"""The enabled log levels are sent to the engine only after a change."""

import logging
import subprocess
import sys

import pytest
from kopf._runtime.bridge import LOGGERS, TRACES, Bridge


class Engine:
    def __init__(self):
        self.levels = []
        self.tracing = []

    def set_log_level(self, level):
        self.levels.append(level)

    def set_tracing(self, is_enabled):
        self.tracing.append(is_enabled)

    def poll(self):
        return []


@pytest.fixture
def root_level():
    root = logging.getLogger()
    level = root.level
    yield root.setLevel
    root.setLevel(level)


def test_levels_are_sent_after_a_change(root_level):
    engine = Engine()
    bridge = Bridge(engine, {}, loop=object())
    root_level(logging.INFO)
    for _ in range(3):
        bridge.poll()
    assert engine.levels == [logging.INFO]
    root_level(logging.DEBUG)
    # Log calls in between must not hide the change.
    logging.getLogger("kopf._core.reactor.running").isEnabledFor(logging.DEBUG)
    bridge.poll()
    bridge.poll()
    assert engine.levels == [logging.INFO, logging.DEBUG]


@pytest.mark.parametrize("name", [*LOGGERS, "kopf._core.engines", "kopf.activities", "kopf"])
def test_each_logger_of_the_engine_and_each_parent_has_its_own_level(root_level, name):
    engine = Engine()
    bridge = Bridge(engine, {}, loop=object())
    root_level(logging.WARNING)
    bridge.poll()
    logger = logging.getLogger(name)
    logger.setLevel(logging.DEBUG)
    try:
        bridge.poll()
    finally:
        logger.setLevel(logging.NOTSET)
    bridge.poll()
    assert engine.levels == [logging.WARNING, logging.DEBUG, logging.WARNING]


def test_names_of_the_loggers():
    assert "kopf._cogs.clients.watching" in LOGGERS
    assert TRACES.name not in LOGGERS


@pytest.fixture
def traces_level():
    level = TRACES.level
    yield TRACES.setLevel
    TRACES.setLevel(level)


@pytest.mark.parametrize(
    "before, after, expected",
    [
        ("", "", "INFO"),
        ("logging.basicConfig(level=logging.DEBUG)", "", "INFO"),
        ("logging.getLogger('kopf.engine').setLevel(logging.DEBUG)", "", "DEBUG"),
        ("", "kopf.configure(verbose=True)", "INFO"),
        ("", "kopf.configure(debug=True)", "DEBUG"),
        ("", "kopf.configure(debug=True); kopf.configure(debug=True); kopf.configure()", "INFO"),
        ("logging.getLogger('kopf.engine').setLevel(logging.DEBUG)", "kopf.configure()", "DEBUG"),
    ],
)
def test_traces_are_off_unless_they_are_requested(before, after, expected):
    printed = "logging.getLevelName(logging.getLogger('kopf.engine').getEffectiveLevel())"
    code = f"import logging\n{before}\nimport kopf, kopf._runtime.bridge\n{after}\nprint({printed})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == expected, done.stderr


def test_traces_are_enabled_only_by_their_own_logger(root_level, traces_level):
    engine = Engine()
    bridge = Bridge(engine, {}, loop=object())
    traces_level(logging.INFO)
    root_level(logging.DEBUG)
    bridge.poll()
    assert engine.tracing == []
    traces_level(logging.DEBUG)
    bridge.poll()
    bridge.poll()
    traces_level(logging.INFO)
    bridge.poll()
    assert engine.tracing == [True, False]
    traces_level(logging.DEBUG)
    bridge.poll()
    # The subscriber belongs to the process, and other operators may follow.
    bridge.close()
    assert engine.tracing == [True, False, True, False]


def test_tracing_stays_off_after_the_end(traces_level):
    class Loop:
        def __init__(self):
            self.scheduled = []

        def call_soon(self, callback):
            self.scheduled.append(callback)

    class CompletingEngine(Engine):
        def complete(self, items):
            self.completed = items

    traces_level(logging.DEBUG)
    engine, loop = CompletingEngine(), Loop()
    bridge = Bridge(engine, {}, loop=loop)
    bridge.poll()
    item = object()
    bridge.complete(item)
    bridge.close()
    for callback in loop.scheduled:
        callback()
    assert engine.completed == [item] and engine.tracing == [True, False]
