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
        self.batches = 0

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
        self.batches += 1


class Loop:
    """An event loop whose next turn is run by the test."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []
        self.errors: list[Any] = []

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(context["exception"])

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def turn(self) -> None:
        callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            callback()


class Panic(BaseException):
    """An error that is no `Exception`, such as a panic of another extension."""


@pytest.mark.parametrize("error", [LookupError("no such thing"), Panic("no such thing")])
def test_errors_of_request_handlers_are_logged_with_the_item(
    caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    handled: list[str] = []

    def fail(item: int) -> None:
        raise error

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


def test_the_last_completion_of_a_batch_sends_all_of_it_at_once() -> None:
    engine: Any = Engine(1, 2)
    loop: Any = Loop()
    bridge = Bridge(engine, {int: lambda item: None}, loop=loop)
    bridge.poll()
    first: Any = 1
    second: Any = 2
    bridge.complete(first)
    assert engine.completed == []
    bridge.complete(second)
    assert (engine.completed, engine.batches) == ([1, 2], 1)
    loop.turn()
    assert engine.batches == 1


def test_a_single_item_is_completed_without_a_turn_of_the_event_loop() -> None:
    engine: Any = Engine(1)
    loop: Any = Loop()
    bridge = Bridge(engine, {int: lambda item: None}, loop=loop)
    bridge.poll()
    item: Any = 1
    bridge.complete(item)
    assert (engine.completed, loop.callbacks) == ([1], [])


def test_completions_wait_for_a_turn_while_others_of_the_batch_are_awaited() -> None:
    engine: Any = Engine(1, 2)
    loop: Any = Loop()
    bridge = Bridge(engine, {int: lambda item: None}, loop=loop)
    bridge.poll()
    item: Any = 1
    bridge.complete(item)
    loop.turn()
    assert engine.completed == [1]


def test_errors_of_sending_are_no_errors_of_the_item() -> None:
    def fail() -> None:
        raise LookupError("no such setting")

    engine: Any = Engine(1)
    loop: Any = Loop()
    bridge = Bridge(engine, {int: lambda item: None}, loop=loop)
    bridge.before_completion = fail
    bridge.poll()
    item: Any = 1
    bridge.complete(item)
    assert engine.completed == [1]
    assert [str(error) for error in loop.errors] == ["no such setting"]
