"""Interfaces for tests: reports of the work of an operator, and a clock that can be moved.

Operators in production have neither: only `kopf.testing` sets the context variable.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any, Protocol


class Clock(Protocol):
    """Time that can be stopped and moved."""

    async def sleep(self, seconds: float) -> None:
        """Wait in the current event loop."""

    def wait_in_thread(
        self, predicate: Callable[[], bool], timeout: float | None, on_wake: Callable[[], None]
    ) -> None:
        """Block the thread until the predicate is true, at most `timeout` seconds."""

    async def wait_in_loop(
        self, future: asyncio.Future[Any], timeout: float | None, on_wake: Callable[[], None]
    ) -> None:
        """Wait in the current event loop until the future is done, at most `timeout` seconds."""

    def notify(self) -> None:
        """Let the threads that wait check their predicates."""


class WorkTracker(Protocol):
    """Receives what an operator starts and finishes; the methods are called in the operator's threads."""

    @property
    def clock(self) -> Clock | None:
        """The clock of the operator; None for real time."""

    def set_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the event loop of the handlers."""

    def set_engine(self, pending: Callable[[], int], awaited_streams: Callable[[], list[str]]) -> None:
        """Set the functions that count the items that the engine has ready for Python, and that name the
        watch streams whose first listing is awaited."""

    def engine_connected(self) -> None:
        """The engine has sent its first request."""

    def work_started(self, work_id: int, description: str = "") -> None:
        """The engine waits for Python. The description names the work in error messages."""

    def work_finished(self, work_id: int) -> None:
        """The outcome is written to the object."""

    def reply_sent(self, work_id: int) -> None:
        """Python has replied; the outcome is not written to the object yet."""

    def daemon_running(self, daemon_id: int, description: str = "") -> None:
        """A daemon executes its own code. The description names it in error messages."""

    def daemon_waiting(self, daemon_id: int) -> None:
        """A daemon waits for its flag, or has ended."""


work_tracker_var: contextvars.ContextVar[WorkTracker | None] = contextvars.ContextVar(
    "work_tracker_var", default=None
)
