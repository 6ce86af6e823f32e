"""Responses for event loops: each loop has a queue, whose descriptor it watches while calls are pending."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from typing import Any

from kopf._runtime.bridge import ResponseQueue, RunningCall

_local = threading.local()


class Responses:
    """The pending calls of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.loop = loop
        self._queue = ResponseQueue()
        self._tickets = itertools.count()
        self._futures: dict[int, asyncio.Future[Any]] = {}

    async def wait(self, start: Callable[[ResponseQueue, int], RunningCall]) -> Any:
        """Start a call, and wait for its outcome. Cancelling this cancels the call."""
        ticket = next(self._tickets)
        future = self.loop.create_future()
        running = start(self._queue, ticket)
        if not self._futures:
            self.loop.add_reader(self._queue.fileno(), self._deliver)
        self._futures[ticket] = future
        try:
            return await future
        finally:
            running.cancel()
            del self._futures[ticket]
            # Without pending calls, nothing of this stays in the loop.
            if not self._futures:
                self.loop.remove_reader(self._queue.fileno())

    def _deliver(self) -> None:
        for ticket, outcome in self._queue.take():
            future = self._futures.get(ticket)
            if future is not None and not future.done():
                future.set_result(outcome)


def current_responses() -> Responses:
    """The pending calls of the running event loop."""
    loop = asyncio.get_running_loop()
    responses: Responses | None = getattr(_local, "responses", None)
    if responses is None or responses.loop is not loop:
        responses = _local.responses = Responses(loop)
    return responses
