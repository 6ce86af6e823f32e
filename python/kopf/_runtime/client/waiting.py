"""Waiting for a condition of an object."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kopf._objects.apierrors import TimedOut
from kopf._objects.bodies import Body
from kopf._objects.changes import ChangeEvent
from kopf._runtime.bridge import CallFailure
from kopf._runtime.client.failures import to_exception
from kopf._runtime.client.operations import Kind, kind_name

Condition = Callable[[Body | None], Any]


class Wait:
    """The state of one wait."""

    def __init__(
        self, kind: Kind, name: str, condition: Condition, timeout: float | None, uid: str | None
    ) -> None:
        super().__init__()
        self._subject = f"{kind_name(kind)} {name}"
        self._condition = condition
        self._timeout = timeout
        self._begin = time.monotonic()
        self._uid = uid
        self._last_uid: str | None = None
        self._listed = False
        self._seen = False
        self.body: Body | None = None

    @property
    def rest(self) -> float | None:
        """The seconds until the end of the timeout; None without a timeout."""
        if self._timeout is None:
            return None
        return max(0.0, self._timeout - (time.monotonic() - self._begin))

    def update(self, body: Body | None) -> bool:
        """Take a state of the object; whether the condition holds."""
        if body is not None and self._uid is not None and body.metadata.uid != self._uid:
            body = None
        if body is not None:
            uid, self._last_uid = self._last_uid, body.metadata.uid
            # Between two objects of the name, there was none, although no event has shown that.
            if uid is not None and body.metadata.uid != uid and self._holds(None):
                return True
        return self._holds(body)

    def _holds(self, body: Body | None) -> bool:
        self.body = body
        return bool(self._condition(body))

    def receive(self, change: ChangeEvent | None) -> bool:
        """Take a change, or the end of a listing; whether the condition holds."""
        if change is None:
            # Later listings deliver deletions as changes.
            missing, self._listed = not (self._listed or self._seen), True
            return missing and self.update(None)
        self._seen = True
        if change.type == "DELETED":
            expected = self._uid or self._last_uid
            is_other = expected is not None and change.body.metadata.uid != expected
            return False if is_other else self.update(None)
        return self.update(change.body)

    def timeout_error(self) -> TimeoutError:
        """The error at the end of the time, with the last state."""
        if self.body is None:
            state = "it does not exist"
        else:
            version = self.body.metadata.get("resourceVersion")
            found = ", ".join(_describe(self.body)) or "none"
            state = f"its resource version is {version}, its conditions: {found}"
        name = getattr(self._condition, "__name__", repr(self._condition))
        return TimeoutError(
            f"{self._subject}: the condition {name} does not hold within {self._timeout} seconds; {state}."
        )


def _describe(body: Body) -> Iterator[str]:
    for item in body.status.get("conditions") or ():
        reason = f" ({item.get('reason')})" if item.get("reason") else ""
        yield f"{item.get('type')}={item.get('status')}{reason}"


def to_changes(items: Iterable[Any], wait: Wait | None = None) -> Iterator[ChangeEvent | None]:
    """The changes of a stream's items, with `None` at the end of each listing; raises at its end."""
    for item in items:
        if item is None:
            yield None
        elif isinstance(item, CallFailure):
            error = to_exception(item)
            if wait is not None and isinstance(error, TimedOut):
                raise wait.timeout_error()
            raise error
        else:
            type_, body, old = item
            yield ChangeEvent(type_, Body(body), None if old is None else Body(old))


def to_lines(items: Iterable[Any]) -> Iterator[str]:
    """The lines of a log; raises the failure that ends it."""
    for item in items:
        if isinstance(item, CallFailure):
            raise to_exception(item)
        yield item
