"""Batches of items: an item that fails does not stop the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kopf._runtime.bridge import Bridge


class Engine:
    def __init__(self, *items: object) -> None:
        self.items = list(items)
        self.completed: list[object] = []

    def set_log_level(self, level: int) -> None:
        pass

    def poll(self) -> list[object]:
        items, self.items = self.items, []
        for item in items:
            if isinstance(item, Exception):
                raise item
        return items

    def complete(self, items: list[object]) -> None:
        self.completed += items


class Loop:
    """An event loop whose next turn is run by the test."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def turn(self) -> None:
        callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            callback()


def test_errors_of_request_handlers_are_logged_with_the_item(caplog: pytest.LogCaptureFixture) -> None:
    handled: list[str] = []

    def fail(item: int) -> None:
        raise LookupError("no such thing")

    engine: Any = Engine(1, "a")
    loop: Any = object()
    Bridge(engine, {int: fail, str: handled.append}, loop=loop).poll_all()
    assert handled == ["a"]
    assert [record.getMessage() for record in caplog.records] == [
        "Internal error while handling int; please report it: no such thing"
    ]
    assert caplog.records[0].exc_info is not None


def test_completions_are_sent_after_a_poll_that_has_failed() -> None:
    engine: Any = Engine(MemoryError("no space"))
    loop: Any = Loop()
    bridge = Bridge(engine, {}, loop=loop)
    with pytest.raises(MemoryError):
        bridge.poll()
    item: Any = "an item"
    bridge.complete(item)
    loop.turn()
    assert engine.completed == ["an item"]


def test_completions_are_sent_although_the_preparation_fails() -> None:
    def fail() -> None:
        raise LookupError("no such setting")

    engine: Any = Engine()
    loop: Any = Loop()
    bridge = Bridge(engine, {}, loop=loop)
    bridge.before_completion = fail
    item: Any = "an item"
    bridge.complete(item)
    with pytest.raises(LookupError):
        loop.turn()
    assert engine.completed == ["an item"]
