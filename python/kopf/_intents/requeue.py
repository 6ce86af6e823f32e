"""Requests of reconcilers to be called again at a certain time."""

from __future__ import annotations

import datetime
import math

from kopf._intents.errors import TemporaryError


class Requeue(TemporaryError):
    """Call the reconciler again in `after` seconds; not an error. It can be raised or returned.

    The reason is logged, and is the message of the condition that `condition=` names. Handlers other than
    reconcilers are retried then, as after any `TemporaryError`.

    Args:
        after: The seconds before the next call, or a `timedelta`.
        reason: The reason, for logs and for the condition.
    """

    __module__ = "kopf"

    def __init__(self, after: float | datetime.timedelta, reason: str = "") -> None:
        seconds = after.total_seconds() if isinstance(after, datetime.timedelta) else float(after)
        if not 0 <= seconds < math.inf:
            raise ValueError(f"A reconciler can be called again in zero or more seconds. Got {after!r}.")
        message = f"requeued in {seconds:g} seconds" + (f": {reason}" if reason else "")
        super().__init__(message, delay=seconds)
        self.after = seconds
        self.reason = reason

    def __reduce__(self) -> tuple[type[Requeue], tuple[float, str]]:
        return type(self), (self.after, self.reason)
