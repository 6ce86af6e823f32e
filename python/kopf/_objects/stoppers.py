"""The flags by which daemons are asked to stop. It owns the flag and its waiters; it must not know who raises
it.
"""

from __future__ import annotations

import asyncio
import enum
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Generator
from typing import Any, Generic, TypeVar

ReasonT = TypeVar("ReasonT", bound=enum.Flag)


class DaemonStoppingReason(enum.Flag):
    """Why a daemon is asked to stop, and how far this has gone; several reasons can be there at once."""

    DONE = enum.auto()
    FILTERS_MISMATCH = enum.auto()
    RESOURCE_DELETED = enum.auto()
    OPERATOR_PAUSING = enum.auto()
    OPERATOR_EXITING = enum.auto()
    DAEMON_SIGNALLED = enum.auto()
    DAEMON_CANCELLED = enum.auto()
    DAEMON_ABANDONED = enum.auto()


class FlagSetter(Generic[ReasonT]):
    """A flag with reasons: raised once, by any thread, and never lowered; reasons are accumulated."""

    def __init__(self) -> None:
        super().__init__()
        self.reason: ReasonT | None = None
        self.sync_event = threading.Event()
        self.sync_waiter: SyncFlagWaiter[ReasonT] = SyncFlagWaiter(self)
        self.async_waiter: AsyncFlagWaiter[ReasonT] = AsyncFlagWaiter(self)
        self._lock = threading.Lock()
        self._futures: set[asyncio.Future[None]] = set()

    def is_set(self, reason: ReasonT | None = None) -> bool:
        """Whether the flag is raised; with a reason, whether it is raised for this reason, maybe among
        others.
        """
        return self.sync_event.is_set() and (
            reason is None or (self.reason is not None and reason in self.reason)
        )

    def set(self, reason: ReasonT | None = None) -> None:
        """Raise the flag, adding one more reason if it is already raised."""
        with self._lock:
            if reason is not None:
                self.reason = reason if self.reason is None else self.reason | reason
            self.sync_event.set()
            futures, self._futures = self._futures, set()
        for future in futures:
            future.get_loop().call_soon_threadsafe(_wake, future)

    async def wait_in_loop(self, timeout: float | None) -> None:
        """Wait in the current event loop for the flag or for the timeout (seconds), whichever comes first."""
        future = asyncio.get_running_loop().create_future()
        with self._lock:
            if self.sync_event.is_set():
                return
            self._futures.add(future)
        try:
            await asyncio.wait([future], timeout=timeout)
        finally:
            with self._lock:
                self._futures.discard(future)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class FlagWaiter(ABC, Generic[ReasonT]):
    """What handlers see of the flag: it can be checked and waited for, but not raised."""

    def __init__(self, setter: FlagSetter[ReasonT], /) -> None:
        super().__init__()
        self._setter = setter

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.is_set()}, reason={self.reason!r}>"

    def __bool__(self) -> bool:
        return self._setter.is_set()

    def is_set(self) -> bool:
        """Whether the flag is raised."""
        return self._setter.is_set()

    @property
    def reason(self) -> ReasonT | None:
        """Why the flag is raised: one or several reasons, or None while it is not."""
        return self._setter.reason

    @abstractmethod
    def wait(self, timeout: float | None = None) -> Any:
        """Wait for the flag, at most `timeout` seconds."""
        raise NotImplementedError


class SyncFlagWaiter(FlagWaiter[ReasonT]):
    """The flag for synchronous handlers."""

    def wait(self, timeout: float | None = None) -> SyncFlagWaiter[ReasonT]:
        """Block the thread until the flag is raised, at most `timeout` seconds; check the result for
        truth.
        """
        self._setter.sync_event.wait(timeout=timeout)
        return self


class AsyncFlagWaiter(FlagWaiter[ReasonT]):
    """The flag for asynchronous handlers."""

    def __await__(self) -> Generator[Any, None, Any]:
        raise NotImplementedError(
            "Daemon stoppers should not be awaited directly. Use `await stopped.wait()`."
        )

    def wait(self, timeout: float | None = None) -> AsyncFlagPromise[ReasonT]:
        """Return an awaitable that waits for the flag, at most `timeout` seconds; check its result for
        truth.
        """
        return AsyncFlagPromise(self, timeout=timeout)


class AsyncFlagPromise(FlagWaiter[ReasonT], Awaitable[AsyncFlagWaiter[ReasonT]]):
    """The waiting itself: when awaited, it returns the flag, raised or not."""

    def __init__(self, waiter: AsyncFlagWaiter[ReasonT], *, timeout: float | None) -> None:
        super().__init__(waiter._setter)
        self._waiter = waiter
        self._timeout = timeout

    def __await__(self) -> Generator[Any, None, AsyncFlagWaiter[ReasonT]]:
        return self._wait().__await__()

    async def _wait(self) -> AsyncFlagWaiter[ReasonT]:
        await self._setter.wait_in_loop(self._timeout)
        return self._waiter

    def wait(self, timeout: float | None = None) -> Any:
        """Not for promises: they are to be awaited."""
        raise NotImplementedError("Await the promise itself instead of waiting for it.")


DaemonStopper = FlagSetter[DaemonStoppingReason]
DaemonStopped = FlagWaiter[DaemonStoppingReason]
SyncDaemonStopperChecker = SyncFlagWaiter[DaemonStoppingReason]  # deprecated
AsyncDaemonStopperChecker = AsyncFlagWaiter[DaemonStoppingReason]  # deprecated
