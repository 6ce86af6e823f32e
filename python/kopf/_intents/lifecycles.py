"""Lifecycles: functions that select the handlers to be called now, and the default lifecycle.

A lifecycle gets the handlers that are neither finished nor delayed, in the order of declaration, their
states, and the arguments of the cause.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from kopf._intents.handlers import Handler

logger = logging.getLogger("kopf._core.actions.lifecycles")

Handlers = Sequence[Handler]


class HandlerState(Protocol):
    """The state of a handler, for lifecycles."""

    @property
    def started(self) -> datetime.datetime:
        """The time when the handler was first selected."""

    @property
    def stopped(self) -> datetime.datetime | None:
        """The time of the final outcome; None before it."""

    @property
    def delayed(self) -> datetime.datetime | None:
        """The time before which the handler is not called again; None if it is not delayed."""

    @property
    def purpose(self) -> str | None:
        """The reason of the handling, such as `create`."""

    @property
    def retries(self) -> int:
        """The number of finished attempts."""

    @property
    def success(self) -> bool:
        """Whether the handler has succeeded."""

    @property
    def failure(self) -> bool:
        """Whether the handler has failed permanently."""

    @property
    def message(self) -> str | None:
        """The error message of the last attempt; None if it has not failed."""

    @property
    def subrefs(self) -> Collection[str]:
        """The ids of all sub-handlers."""

    @property
    def finished(self) -> bool:
        """Whether the handler has succeeded or failed permanently."""

    @property
    def sleeping(self) -> bool:
        """Whether the handler waits for its next attempt."""

    @property
    def awakened(self) -> bool:
        """Whether the handler can be called now."""

    @property
    def runtime(self) -> datetime.timedelta:
        """The time since the handler was first selected."""


class LifeCycleFn(Protocol):
    """A function that picks the handlers to be called now.

    The states are those of all handlers of the change, and of others with a record on the object.
    """

    def __call__(
        self, handlers: Handlers, *, state: Mapping[Any, HandlerState], **kwargs: Any
    ) -> Handlers: ...


def all_at_once(handlers: Handlers, **_: Any) -> Handlers:
    """All handlers in their order.

    Args:
        handlers: The handlers that are due.
        **_: The keyword arguments of handlers.
    """
    return handlers


def one_by_one(handlers: Handlers, **_: Any) -> Handlers:
    """The first handler.

    Args:
        handlers: The handlers that are due.
        **_: The keyword arguments of handlers.
    """
    return handlers[:1]


def randomized(handlers: Handlers, **_: Any) -> Handlers:
    """One handler, chosen by chance.

    Args:
        handlers: The handlers that are due.
        **_: The keyword arguments of handlers.
    """
    import random  # as slow to import as it is rarely needed

    return [random.choice(handlers)] if handlers else []


def shuffled(handlers: Handlers, **_: Any) -> Handlers:
    """All handlers in a random order.

    Args:
        handlers: The handlers that are due.
        **_: The keyword arguments of handlers.
    """
    import random

    return random.sample(handlers, k=len(handlers)) if handlers else []


def asap(handlers: Handlers, *, state: Mapping[Any, HandlerState], **_: Any) -> Handlers:
    """The handler with the fewest attempts; so a failing handler does not block the others.

    Args:
        handlers: The handlers that are due.
        state: The progress of the handlers by their ids.
        **_: The other keyword arguments of handlers.
    """
    return sorted(handlers, key=lambda handler: state[handler.id].retries or 0)[:1]


BUILTIN_LIFECYCLES = (all_at_once, one_by_one, randomized, shuffled, asap)
"""The lifecycles that the engine knows by their names. They are not called if no handlers are due."""

_default_lifecycle: LifeCycleFn = asap


def get_default_lifecycle() -> LifeCycleFn:
    """The lifecycle of operators that are started without one."""
    return _default_lifecycle


def set_default_lifecycle(lifecycle: LifeCycleFn | None) -> None:
    """Replace the lifecycle of operators that are started without one; None restores `asap`.

    Args:
        lifecycle: The lifecycle, such as those of `kopf.lifecycles`; None: `asap`.
    """
    global _default_lifecycle
    logger.warning(
        f"The default lifecycle is already set to {_default_lifecycle}, overriding it to {lifecycle}."
    )
    _default_lifecycle = lifecycle if lifecycle is not None else asap
