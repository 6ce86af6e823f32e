"""Monitor of the event loop: warns of functions that block it, and so all other handlers.

While asynchronous handlers run, a thread schedules a callback regularly. If the loop does not execute it in
time, the warning names the line of code that the loop executes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from types import FrameType

from kopf._runtime.errors import is_author_file
from kopf._runtime.invocation import Invoker

PROBE_INTERVAL = 1.0
BLOCKED_THRESHOLD = 5.0

logger = logging.getLogger("kopf._core.reactor.running")


class EventLoopMonitor:
    """Warns of a blocked event loop during the `with` block; once for each line of code."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        invoker: Invoker,
        *,
        interval: float = PROBE_INTERVAL,
        threshold: float = BLOCKED_THRESHOLD,
    ) -> None:
        super().__init__()
        self._loop = loop
        self._invoker = invoker
        self._interval = interval
        self._threshold = threshold
        self._loop_thread = threading.get_ident()
        self._changed = threading.Condition()
        self._responded = True
        self._stopping = False
        self._reported: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="kopf-blocking", daemon=True)

    def __enter__(self) -> EventLoopMonitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        with self._changed:
            while not self._changed.wait_for(lambda: self._stopping, self._interval):
                if not self._invoker.running:
                    continue
                self._responded = False
                try:
                    self._loop.call_soon_threadsafe(self._on_response)
                except RuntimeError:  # the loop is closed
                    return
                if not self._changed.wait_for(lambda: self._responded or self._stopping, self._threshold):
                    self._report(sys._current_frames().get(self._loop_thread))
                    self._changed.wait_for(lambda: self._responded or self._stopping)

    def _on_response(self) -> None:
        with self._changed:
            self._responded = True
            self._changed.notify_all()

    # Without frames of the author, the whole process was suspended, e.g. with its machine.
    def _report(self, frame: FrameType | None) -> None:
        ids = {
            handler.fn.__code__: str(handler.id)
            for handler, _, _ in list(self._invoker.running.values())
            if hasattr(handler.fn, "__code__")
        }
        location = handler_id = None
        while frame is not None:
            if location is None and is_author_file(frame.f_code.co_filename):
                location = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
            handler_id = ids.get(frame.f_code, handler_id)
            frame = frame.f_back
        if location is None or location in self._reported:
            return
        self._reported.add(location)
        handler_name = handler_id or "a function"
        logger.warning(
            f"The event loop is blocked for {self._threshold:g} seconds by {handler_name} ({location}): "
            "all other handlers wait. Use `def` instead of `async def` for the handler, or "
            "`asyncio.to_thread()`."
        )
