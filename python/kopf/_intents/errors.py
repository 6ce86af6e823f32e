"""Exceptions with which handlers control their retries."""

from __future__ import annotations

import enum


class PermanentError(Exception):
    """The handler has failed and will never succeed: do not retry it."""


class TemporaryError(Exception):
    """The handler has failed, but can succeed later: retry it in `delay` seconds (None: at once).

    Args:
        msg: The message for logs.
        delay: The seconds before the next attempt; None: at once.
    """

    def __init__(self, msg: str | None = None, /, delay: float | None = 60) -> None:
        super().__init__(msg)
        self.delay = delay


class HandlerTimeoutError(PermanentError):
    """The handler has been running or retrying for longer than it is allowed to."""


class HandlerRetriesError(PermanentError):
    """The handler has reached its maximum number of attempts."""


class ReconcileTimeoutError(TemporaryError):
    """A call of a reconciler has exceeded its `reconcile_timeout`."""


class LeadershipLost(TemporaryError):
    """The replica is not the leader any longer, or its term has ended: the next leader continues."""


class HandlerChildrenRetry(TemporaryError):
    """The handler has unfinished sub-handlers and must be called again to continue with them."""


class AdmissionError(PermanentError):
    """The request is denied, with this message and this HTTP-like code in the response.

    Args:
        message: The message for the user.
        code: The code in the response, such as an HTTP status.
    """

    def __init__(self, message: str | None = "", code: int | None = 500) -> None:
        super().__init__(message)
        self.code = code


class ErrorsMode(enum.Enum):
    """How arbitrary errors of a handler are treated: all but `TemporaryError` and `PermanentError`."""

    IGNORED = enum.auto()
    TEMPORARY = enum.auto()
    PERMANENT = enum.auto()
