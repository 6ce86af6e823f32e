"""Stop flags of daemons, and what daemons see of them."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, Protocol, TypeVar

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


class WaitStrategy(Protocol):
    """How to wait for flags in virtual time."""

    def wait_in_thread(self, predicate: Callable[[], bool], timeout: float | None) -> None:
        """Block the thread until the predicate is true, at most `timeout` seconds."""

    async def wait_in_loop(self, future: asyncio.Future[None], timeout: float | None) -> None:
        """Wait in the current event loop until the future is done, at most `timeout` seconds."""

    def on_set(self) -> None:
        """A flag is raised: let the threads that wait check it."""


# Raising is quick and rare: one lock for all flags spares one per daemon.
_lock = threading.Lock()


class FlagSetter(Generic[ReasonT]):
    """A flag with reasons: raised once, by any thread, and never lowered; reasons are accumulated.

    There is one for each daemon and timer, and most never look at it: the event and the futures are created
    when they are needed.
    """

    __slots__ = ("__weakref__", "_event", "_futures", "_raised", "_wait_strategy", "_waiter", "reason")

    def __init__(self, wait_strategy: WaitStrategy | None = None) -> None:
        super().__init__()
        self._wait_strategy = wait_strategy
        self.reason: ReasonT | None = None
        self._raised = False
        self._event: threading.Event | None = None
        self._futures: set[asyncio.Future[None]] | None = None
        self._waiter: FlagWaiter[ReasonT] | None = None

    @property
    def sync_event(self) -> threading.Event:
        """The flag for threads."""
        with _lock:
            if self._event is None:
                self._event = threading.Event()
                if self._raised:
                    self._event.set()
            return self._event

    @property
    def sync_waiter(self) -> SyncFlagWaiter[ReasonT]:
        """The flag as synchronous handlers see it."""
        if not isinstance(self._waiter, SyncFlagWaiter):
            self._waiter = SyncFlagWaiter(self)
        return self._waiter

    @property
    def async_waiter(self) -> AsyncFlagWaiter[ReasonT]:
        """The flag as asynchronous handlers see it."""
        if not isinstance(self._waiter, AsyncFlagWaiter):
            self._waiter = AsyncFlagWaiter(self)
        return self._waiter

    def is_set(self, reason: ReasonT | None = None) -> bool:
        """Whether the flag is raised: for any reason, or for this one, maybe among others."""
        return self._raised and (reason is None or (self.reason is not None and reason in self.reason))

    def set(self, reason: ReasonT | None = None) -> None:
        """Raise the flag, adding one more reason if it is already raised."""
        with _lock:
            if reason is not None:
                self.reason = reason if self.reason is None else self.reason | reason
            self._raised = True
            if self._event is not None:
                self._event.set()
            futures, self._futures = self._futures, None
        if self._wait_strategy is not None:
            self._wait_strategy.on_set()
        for future in futures or ():
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nothing waits
                future.get_loop().call_soon_threadsafe(_wake, future)

    def wait_in_thread(self, timeout: float | None) -> None:
        """Block the thread for the flag or for the timeout (seconds), whichever comes first."""
        if self._wait_strategy is not None:
            self._wait_strategy.wait_in_thread(self.is_set, timeout)
        else:
            self.sync_event.wait(timeout=timeout)

    async def wait_in_loop(self, timeout: float | None) -> None:
        """Wait in the current event loop for the flag or for the timeout (seconds), whichever comes first.

        It suspends the task also if the flag is already raised, so that a loop around it can be cancelled.
        """
        future = asyncio.get_running_loop().create_future()
        with _lock:
            is_raised = self._raised
            if not is_raised:
                if self._futures is None:
                    self._futures = set()
                self._futures.add(future)
        if is_raised:
            await asyncio.sleep(0)
            return
        try:
            if self._wait_strategy is not None:
                await self._wait_strategy.wait_in_loop(future, timeout)
            else:
                await asyncio.wait([future], timeout=timeout)
        finally:
            with _lock:
                if self._futures is not None:
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
        return f"<{type(self).__name__}: {self.is_set()}, reason={self.reason}>"

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


def release_waiter(setter: FlagSetter[Any]) -> None:
    """Drop what handlers see of the flag: it refers back to the flag, and so keeps it in memory."""
    setter._waiter = None


class SyncFlagWaiter(FlagWaiter[ReasonT]):
    """The flag for synchronous handlers."""

    def wait(self, timeout: float | None = None) -> SyncFlagWaiter[ReasonT]:
        """Block the thread until the flag is raised, at most `timeout` seconds; the result is true then."""
        self._setter.wait_in_thread(timeout)
        return self


class AsyncFlagWaiter(FlagWaiter[ReasonT]):
    """The flag for asynchronous handlers."""

    def __await__(self) -> Generator[Any, None, Any]:
        raise NotImplementedError(
            "Daemon stoppers should not be awaited directly. Use `await stopped.wait()`."
        )

    def wait(self, timeout: float | None = None) -> AsyncFlagPromise[ReasonT]:
        """Return an awaitable that waits for the flag, at most `timeout` seconds; its result is true then."""
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
"""The argument `stopped` of daemons."""

SyncDaemonStopperChecker = SyncFlagWaiter[DaemonStoppingReason]
"""Deprecated: the argument `stopped` of synchronous daemons."""

AsyncDaemonStopperChecker = AsyncFlagWaiter[DaemonStoppingReason]
"""Deprecated: the argument `stopped` of asynchronous daemons."""
