"""The verdicts of `kopf explain` that depend on more than the cycle: sub-handlers, and leader election."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kopf._cli.cluster_session import Session
from kopf._cli.leases import find_lease
from kopf._cli.tables import format_age
from kopf._objects.bodies import Body

LED_KINDS = ("change", "event", "daemon", "timer", "reconciler")
"""The kinds of handlers that are called only in the replica that leads."""


@dataclass(frozen=True)
class Verdict:
    """The verdict about one handler."""

    id: str
    kind: str
    verdict: str
    code: str | None
    why: str
    attempts: int | None = None
    next: str | None = None
    stopped: str | None = None
    message: str | None = None
    parent: str | None = None
    """The id of the handler that has registered this sub-handler; None for other handlers."""


def with_subhandlers(
    session: Session, body: Body, verdicts: Sequence[Verdict], now: float
) -> Iterator[Verdict]:
    """The verdicts, each followed by those of its sub-handlers. `now` is in seconds since the epoch.

    Sub-handlers are registered by the call of their parent, so only those of earlier calls are known: by the
    progress that is stored on the object.
    """
    storage = session.settings.persistence.progress_storage
    for verdict in verdicts:
        yield verdict
        record = storage.fetch(key=verdict.id, body=body) if verdict.kind == "change" else None  # type: ignore[arg-type]
        for id in (record or {}).get("subrefs") or ():
            child = storage.fetch(key=id, body=body)
            if child is not None:
                yield _of_subhandler(str(id), verdict, child, now)


def _of_subhandler(id: str, parent: Verdict, record: Mapping[str, Any], now: float) -> Verdict:
    message = record.get("message") or None
    retries = int(record.get("retries") or 0)
    delayed = record.get("delayed")
    left = _seconds(delayed) - now if delayed else 0.0
    fields: dict[str, Any] = {"id": id, "kind": "change", "attempts": retries, "parent": parent.id}
    fields |= {"message": message, "stopped": record.get("stopped")}
    if record.get("success"):
        return Verdict(
            verdict="done", code="done", why=f"succeeded{_ago(record, now)} in this handling", **fields
        )
    if record.get("failure"):
        text = f": {message}" if message else ""
        return Verdict(verdict="done", code="failed", why=f"failed{_ago(record, now)}{text}", **fields)
    if left > 0:
        text = f", after: {message}" if message else ""
        why = f"attempt {retries + 1} in {format_age(left)}{text}"
        return Verdict(verdict="later", code="delay", why=why, next=str(delayed), **fields)
    if parent.verdict == "yes":
        return Verdict(verdict="yes", code=None, why="", **fields)
    return Verdict(verdict=parent.verdict, code=parent.code, why=f"as {parent.id}", **fields)


def _ago(record: Mapping[str, Any], now: float) -> str:
    stopped = record.get("stopped")
    return f" {format_age(max(now - _seconds(stopped), 0))} ago" if stopped else ""


def _seconds(moment: Any) -> float:
    return datetime.datetime.fromisoformat(str(moment)).timestamp()


def with_fence(session: Session, verdicts: Sequence[Verdict], now: float) -> list[Verdict]:
    """The verdicts, if no replica leads: then no handler is called but those of indices."""
    holder = find_lease(session, now)
    if holder is None or holder.is_live:
        return list(verdicts)
    why = f"no replica leads: {holder.describe()}"
    return [
        dataclasses.replace(verdict, verdict="later", code="fence", why=why)
        if verdict.verdict == "yes" and verdict.kind in LED_KINDS
        else verdict
        for verdict in verdicts
    ]
