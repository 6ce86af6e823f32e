"""The faults: what is done to a running operator while its objects change; each is withdrawn at the end."""

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from definitions import LAST, PREFIX
from interposer import Asked, Doing, Fault, refusal
from theatre import Scenery, Theatre

Row = Callable[[Theatre], None]
ROWS: dict[str, tuple[Row, Scenery]] = {}


def row(title: str, **scenery: Any) -> Callable[[Row], Row]:
    """A row of the table, and what must be there before the operator starts."""

    def register(function: Row) -> Row:
        ROWS[title] = function, Scenery(**scenery)
        return function

    return register


def on(*verbs: str, doing: Doing, times: int | None = None) -> Fault:
    """The fault for requests of these verbs about parcels, until it has happened so many times."""
    left = itertools.count() if times is None else iter(range(times))
    lock = threading.Lock()

    def fault(asked: Asked) -> Doing | None:
        if asked.verb not in verbs or "/parcels" not in asked.path:
            return None
        with lock:
            return doing if next(left, None) is not None else None

    return fault


@contextlib.contextmanager
def faulty(theatre: Theatre, fault: Fault) -> Iterator[None]:
    theatre.proxy.faults.append(fault)
    try:
        yield
    finally:
        theatre.proxy.faults.remove(fault)


def changes(theatre: Theatre) -> None:
    """What happens to the objects meanwhile: one is changed, one goes, one comes."""
    theatre.change("a", 2)
    theatre.delete("b")
    theatre.create("d")


def meanwhile(theatre: Theatre, fault: Fault, seconds: float, *, cut: bool = False) -> None:
    with faulty(theatre, fault):
        if cut:
            theatre.proxy.cut()
        changes(theatre)
        time.sleep(seconds)


@row("no fault")
def nothing(theatre: Theatre) -> None:
    changes(theatre)


@row("a change between two handlers")
def between(theatre: Theatre) -> None:
    theatre.troupe.order(slowness=0.3)
    before = len(theatre.calls)
    theatre.change("a", 2)
    theatre.wait(lambda: ("first", "a") in [call[:2] for call in theatre.calls[before:]], 5)
    theatre.change("a", 3)
    theatre.create("d")
    theatre.wait(lambda: theatre.has_called("first", "d"), 5)
    theatre.change("d", 5)


@row("a watch that is silent without being closed")
def silent(theatre: Theatre) -> None:
    theatre.proxy.silent = True
    changes(theatre)
    time.sleep(0.5)
    theatre.proxy.silent = False


@row("half-open connections")
def half_open(theatre: Theatre) -> None:
    meanwhile(theatre, on("watch", "list", doing=Doing(hang=True), times=2), 1, cut=True)


@row("watches are cut all the time")
def cuts(theatre: Theatre) -> None:
    for value in range(2, 6):
        theatre.change("a", value)
        theatre.proxy.cut()
        time.sleep(0.5)
    theatre.delete("b")
    theatre.proxy.cut()
    theatre.create("d")


@row("410 to watches")
def gone(theatre: Theatre) -> None:
    meanwhile(theatre, on("watch", doing=refusal(410, "Expired"), times=3), 1, cut=True)


@row("410 to watches and lists")
def all_gone(theatre: Theatre) -> None:
    meanwhile(theatre, on("watch", "list", doing=refusal(410, "Expired"), times=3), 1, cut=True)


@row("500 to watches and lists")
def broken(theatre: Theatre) -> None:
    meanwhile(theatre, on("watch", "list", doing=refusal(500, "InternalError")), 2, cut=True)


@row("403 to watches and lists")
def forbidden(theatre: Theatre) -> None:
    meanwhile(theatre, on("watch", "list", doing=refusal(403, "Forbidden")), 2, cut=True)


@row("429 with Retry-After to everything")
def too_many(theatre: Theatre) -> None:
    doing = refusal(429, "TooManyRequests", {"Retry-After": "1"})
    meanwhile(theatre, on("watch", "list", "patch", doing=doing, times=6), 1, cut=True)


@row("ERROR records in the stream")
def error_records(theatre: Theatre) -> None:
    for code in (410, 500):
        status = {"kind": "Status", "status": "Failure", "code": code, "reason": "Expired", "message": "no"}
        record = {"type": "ERROR", "object": status}
        theatre.proxy.injected.append(json.dumps(record).encode() + b"\n")
    changes(theatre)


@row("garbage in the stream")
def garbage_records(theatre: Theatre) -> None:
    theatre.proxy.injected += [b"<html>\n", b'{"type": "ADDED", "object": 5}\n', b'{"type": "WHATEVER"}\n']
    changes(theatre)


@row("garbage instead of answers")
def garbage(theatre: Theatre) -> None:
    meanwhile(theatre, on("list", "patch", doing=Doing(garbage=True), times=4), 1, cut=True)


@row("truncated answers")
def truncated(theatre: Theatre) -> None:
    meanwhile(theatre, on("list", "patch", doing=Doing(truncate=True), times=4), 1, cut=True)


@row("409 to patches")
def conflicts(theatre: Theatre) -> None:
    meanwhile(theatre, on("patch", doing=refusal(409, "Conflict"), times=8), 1)


@row("422 to patches")
def unprocessable(theatre: Theatre) -> None:
    meanwhile(theatre, on("patch", doing=refusal(422, "Invalid"), times=4), 1)


@row("500 to patches")
def broken_patches(theatre: Theatre) -> None:
    meanwhile(theatre, on("patch", doing=refusal(500, "InternalError")), 2)


@row("patches applied, their answers lost")
def lost(theatre: Theatre) -> None:
    meanwhile(theatre, on("patch", doing=Doing(lose=True), times=8), 1)


@row("patches slow by 2 s")
def slow(theatre: Theatre) -> None:
    meanwhile(theatre, on("patch", doing=Doing(pause=2)), 1)


@row("the API server stalls")
def stalled(theatre: Theatre) -> None:
    until = time.monotonic() + 4

    def fault(_: Asked) -> Doing | None:
        return Doing(pause=max(0.0, until - time.monotonic()))

    meanwhile(theatre, fault, 4)


@row("the API server is killed and restarted")
def restarted(theatre: Theatre) -> None:
    theatre.proxy.stop()
    changes(theatre)
    time.sleep(1.5)
    theatre.proxy.start()


@row("401 for 4 s, then the same token")
def same_token(theatre: Theatre) -> None:
    until = time.monotonic() + 4
    unauthorized = refusal(401, "Unauthorized")
    with faulty(theatre, lambda _: unauthorized if time.monotonic() < until else None):
        theatre.proxy.cut()
        changes(theatre)
        time.sleep(4)


@row("401 for 3 s, then a new token")
def new_token(theatre: Theatre) -> None:
    unauthorized = refusal(401, "Unauthorized")
    theatre.proxy.faults.append(lambda asked: unauthorized if asked.token != "second" else None)
    theatre.proxy.cut()
    changes(theatre)
    time.sleep(3)
    theatre.troupe.order(token="second")


@row("somebody strips our annotations")
def stripped(theatre: Theatre) -> None:
    theatre.change("a", 2)
    for _ in range(8):
        for name in ("a", "c"):
            body = theatre.cluster.get("parcels", name)
            keys = [key for key in body["metadata"].get("annotations", {}) if key.startswith(PREFIX)]
            theatre.annotate(name, dict.fromkeys(keys))
        time.sleep(0.3)
    theatre.delete("b")
    theatre.create("d")


@row("malformed state on the objects")
def malformed(theatre: Theatre) -> None:
    theatre.annotate("a", {LAST: "{", PREFIX + "first": "[", PREFIX + "second": "nonsense"})
    theatre.annotate("b", {LAST: "}", PREFIX + "farewell": "{", PREFIX + "first": '{"retries": "x"}'})
    theatre.change("a", 2)
    theatre.delete("b")
    theatre.create("d")


@row("an object of 1.2 MB, and a large annotation")
def large(theatre: Theatre) -> None:
    theatre.create("parcel-large", 1, blob="x" * 1_200_000)
    theatre.create("parcel-large-note", 1)
    theatre.annotate("parcel-large-note", {"example.com/note": "y" * 200_000})
    changes(theatre)
    theatre.wait(lambda: theatre.has_called("second", "parcel-large"), 10)
    theatre.change("parcel-large", 2)
    theatre.change("parcel-large-note", 2)


@row("a part of a patch is refused for ever")
def refused(theatre: Theatre) -> None:
    theatre.create("picky")
    changes(theatre)
    theatre.wait(lambda: theatre.has_called("second", "picky"), 10)
    theatre.change("picky", 2)


@row("created and deleted while nobody looked")
def unseen(theatre: Theatre) -> None:
    theatre.proxy.stop()
    theatre.create("e")
    theatre.delete("e")
    changes(theatre)
    theatre.cluster.patch("parcels", "b", {"metadata": {"finalizers": None}})
    time.sleep(0.5)
    theatre.proxy.start()
