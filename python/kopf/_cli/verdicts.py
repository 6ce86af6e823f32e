"""The verdicts of `kopf explain` with their reasons, and those that depend on more than the cycle.

They depend on the calls of parents (sub-handlers), and on leader election.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kopf._cli.cluster_session import Session
from kopf._cli.leases import find_lease
from kopf._cli.tables import format_age, parse_time
from kopf._intents.handlers import ChangingHandler, ResourceHandler
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
    session: Session, body: Body, verdicts: Sequence[Verdict], now: int
) -> Iterator[Verdict]:
    """The verdicts, each followed by those of its sub-handlers. `now` is in microseconds since the epoch.

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


def _of_subhandler(id: str, parent: Verdict, record: Mapping[str, Any], now: int) -> Verdict:
    delayed = record.get("delayed")
    found: dict[str, Any] = {
        "verdict": parent.verdict,
        "code": parent.code,
        "attempts": int(record.get("retries") or 0),
        "next": None,
        "stopped": record.get("stopped"),
        "message": record.get("message") or None,
    }
    if record.get("success"):
        found |= {"verdict": "done", "code": "done"}
    elif record.get("failure"):
        found |= {"verdict": "done", "code": "failed"}
    elif delayed and parse_time(str(delayed)) > now / 1e6:
        found |= {"verdict": "later", "code": "delay", "next": str(delayed)}
    elif parent.verdict == "yes":
        found["code"] = None
    else:
        return Verdict(id=id, kind="change", why=f"as {parent.id}", parent=parent.id, **found)
    return Verdict(id=id, kind="change", why=explain_verdict(found, now), parent=parent.id, **found)


def explain_verdict(
    found: Mapping[str, Any],
    now: int,
    *,
    handler: ResourceHandler | None = None,
    reason: str | None = None,
) -> str:
    """The reason of a verdict, as one line. The time is in microseconds since the epoch."""
    message = f": {found['message']}" if found["message"] else ""
    stopped = format_age_of(found["stopped"], now)
    match found["code"], found["verdict"]:
        case None, "ask":
            return "depends on functions in its filters, which were not called"
        case None, _:
            return ""
        case "reason", _:
            declared = handler.reason if isinstance(handler, ChangingHandler) else None
            return f"handles {declared.value} only" if declared is not None else f"no changes: {reason}"
        case "deleted", _:
            return "the object is deleted" if reason == "gone" else "the object is being deleted"
        case "initial", _:
            return "called when the operator starts (--event listed), for objects that were handled before"
        case "lifecycle", _:
            return "another handler is called first"
        case "duplicate", _:
            return "the same function with the same id is called by another declaration"
        case "delay", _:
            left = format_age_of(found["next"], now, is_future=True)
            after = f", after: {found['message']}" if found["message"] else ""
            return f"attempt {found['attempts'] + 1} in {left}{after}"
        case "done", "later":
            return "the progress of the previous handling is removed first"
        case "done", _:
            return f"succeeded {stopped} ago in this handling" if stopped else "succeeded in this handling"
        case "failed", _:
            return f"failed {stopped} ago{message}" if stopped else f"failed{message}"
        case "limit", _:
            return f"{found['text']}, after {found['attempts']} attempts{message}"
        case "finalizer", "later":
            return "the finalizer is added or removed first"
        case "finalizer", _:
            return "the finalizer does not block the deletion"
        case _:
            return str(found["text"])


def format_age_of(moment: str | None, now: int, *, is_future: bool = False) -> str:
    """The time since the moment, or until it; empty without a moment."""
    if moment is None:
        return ""
    seconds = parse_time(moment) - now / 1e6
    return format_age(max(seconds if is_future else -seconds, 0))


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
