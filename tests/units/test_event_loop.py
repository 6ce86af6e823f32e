"""The event loop of the command line; `make test-newest` installs uvloop, `make test` does not."""

from __future__ import annotations

import asyncio
import importlib.util

import pytest
from kopf._cli.event_loop import event_loop


def test_uvloop_is_used_if_it_is_installed() -> None:
    uvloop = pytest.importorskip("uvloop")
    with event_loop() as loop:
        assert isinstance(loop, uvloop.Loop)
        assert loop.run_until_complete(asyncio.sleep(0, "done")) == "done"
    assert loop.is_closed()


@pytest.mark.skipif(importlib.util.find_spec("uvloop") is not None, reason="uvloop is installed")
def test_asyncio_chooses_the_loop_without_uvloop() -> None:
    with event_loop() as loop:
        assert loop is None


def test_a_given_loop_is_used_and_stays_open() -> None:
    given = asyncio.new_event_loop()
    try:
        with event_loop(given) as loop:
            assert loop is given
        assert not given.is_closed()
    finally:
        given.close()
