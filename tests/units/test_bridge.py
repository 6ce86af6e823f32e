"""Batches of items: an item that fails does not stop the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kopf._runtime.bridge import Bridge


class Engine:
    def __init__(self, *items: object) -> None:
        self.items = list(items)

    def set_log_level(self, level: int) -> None:
        pass

    def poll(self) -> list[object]:
        items, self.items = self.items, []
        return items


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


def test_completions_are_sent_after_a_failed_poll() -> None:
    scheduled: list[Callable[[], None]] = []
    completed: list[object] = []

    class FailingEngine(Engine):
        def poll(self) -> list[object]:
            raise MemoryError

        def complete(self, items: list[object]) -> None:
            completed.extend(items)

    class Loop:
        def call_soon(self, callback: Callable[[], None]) -> None:
            scheduled.append(callback)

    engine: Any = FailingEngine()
    loop: Any = Loop()
    item: Any = object()
    bridge = Bridge(engine, {}, loop=loop)
    with pytest.raises(MemoryError):
        bridge.poll()
    bridge.complete(item)
    [flush] = scheduled
    flush()
    assert completed == [item]
