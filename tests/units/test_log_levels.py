"""The enabled log levels are sent to the engine only after a change."""

import logging

import pytest
from kopf._runtime.bridge import Bridge


class Engine:
    def __init__(self):
        self.levels = []

    def set_log_level(self, level):
        self.levels.append(level)

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


def test_the_most_talkative_of_the_loggers_decides(root_level):
    engine = Engine()
    bridge = Bridge(engine, {}, loop=object())
    root_level(logging.WARNING)
    bridge.poll()
    logger = logging.getLogger("kopf.objects")
    logger.setLevel(logging.DEBUG)
    try:
        bridge.poll()
    finally:
        logger.setLevel(logging.NOTSET)
    bridge.poll()
    assert engine.levels == [logging.WARNING, logging.DEBUG, logging.WARNING]
