"""Event loops whose idleness is known: whether they execute callbacks, or have something to execute."""

from __future__ import annotations

import asyncio
import select
import selectors
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike


class ObservedSelector(selectors.BaseSelector):
    """The selector of an event loop, which other threads observe; use it in one event loop only."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = selectors.DefaultSelector()
        # The descriptor of a selector is readable if one of its descriptors is ready. No event is taken.
        self._readiness = select.poll()
        self._readiness.register(_fileno(self._selector), select.POLLIN)
        # Such an object rejects concurrent calls.
        self._readiness_lock = threading.Lock()
        self._waits_until: float | None = None
        self._is_closed = False
        self.turns = 0
        """The number of turns of the event loop. If it has not changed, the loop has executed nothing."""

    @property
    def is_idle(self) -> bool:
        """Whether the event loop only waits: no callback is executed, no descriptor ready, no timer due.

        It counts only if `turns` is the same before and after.
        """
        waits_until = self._waits_until
        if waits_until is None or time.monotonic() >= waits_until or self._is_closed:
            return False
        try:
            with self._readiness_lock:
                return not self._readiness.poll(0)
        except OSError:  # it is closed meanwhile
            return False

    def register(self, fileobj: FileDescriptorLike, events: int, data: Any = None) -> selectors.SelectorKey:
        """Register a descriptor."""
        return self._selector.register(fileobj, events, data)

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        """Unregister a descriptor."""
        return self._selector.unregister(fileobj)

    def modify(self, fileobj: FileDescriptorLike, events: int, data: Any = None) -> selectors.SelectorKey:
        """Change the events of a descriptor."""
        return self._selector.modify(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for events. With a positive timeout or none, the event loop has nothing to execute."""
        self.turns += 1
        if timeout is None:
            self._waits_until = float("inf")
        elif timeout > 0:
            self._waits_until = time.monotonic() + timeout
        try:
            return self._selector.select(timeout)
        finally:
            # The descriptors are still ready until the callbacks read from them: there is no gap.
            self._waits_until = None

    def close(self) -> None:
        """Close the selector."""
        self._is_closed = True
        self._waits_until = None
        self._selector.close()

    def get_map(self) -> Mapping[FileDescriptorLike, selectors.SelectorKey]:
        """The registered descriptors."""
        return self._selector.get_map()


def _fileno(selector: selectors.BaseSelector) -> int:
    # The selectors of Linux, macOS and the BSDs have descriptors, but the base class does not.
    number: int = selector.fileno()  # type: ignore[attr-defined]
    return number


def new_event_loop() -> tuple[asyncio.AbstractEventLoop, ObservedSelector | None]:
    """A new event loop, with its selector; without one if another kind of event loop is set up."""
    loop = asyncio.new_event_loop()
    if type(loop) is not asyncio.SelectorEventLoop or not hasattr(selectors.DefaultSelector, "fileno"):
        return loop, None
    loop.close()
    selector = ObservedSelector()
    return asyncio.SelectorEventLoop(selector), selector
