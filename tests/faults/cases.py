"""Fault cases: each injects a fault while an operator runs and its objects change, and removes it at the
end."""

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from tests.faults.crds import LAST, PREFIX
from tests.faults.fault_harness import Harness, Scenery
from tests.faults.fault_proxy import Asked, Fault, FaultAction, rejection

Row = Callable[[Harness], None]
CASES: dict[str, tuple[Row, Scenery]] = {}


def case(title: str, **scenery: Any) -> Callable[[Row], Row]:
    """A row of the table, and what must be there before the operator starts."""

    def register(function: Row) -> Row:
        CASES[title] = function, Scenery(**scenery)
        return function

    return register


def on(*verbs: str, doing: FaultAction, times: int | None = None) -> Fault:
    """The fault for requests of these verbs about parcels, until it has happened so many times."""
    left = itertools.count() if times is None else iter(range(times))
    lock = threading.Lock()

    def fault(asked: Asked) -> FaultAction | None:
        if asked.verb not in verbs or "/parcels" not in asked.path:
            return None
        with lock:
            return doing if next(left, None) is not None else None

    return fault


@contextlib.contextmanager
def faulty(harness: Harness, fault: Fault) -> Iterator[None]:
    harness.proxy.faults.append(fault)
    try:
        yield
    finally:
        harness.proxy.faults.remove(fault)


def changes(harness: Harness) -> None:
    """What happens to the objects meanwhile: one is changed, one goes, one comes."""
    harness.change("a", 2)
    harness.delete("b")
    harness.create("d")


def meanwhile(harness: Harness, fault: Fault, seconds: float, *, cut: bool = False) -> None:
    with faulty(harness, fault):
        if cut:
            harness.proxy.cut()
        changes(harness)
        time.sleep(seconds)


@case("no fault")
def nothing(harness: Harness) -> None:
    changes(harness)


@case("a change between two handlers")
def between(harness: Harness) -> None:
    harness.operator_process.order(slowness=0.3)
    before = len(harness.calls)
    harness.change("a", 2)
    harness.wait(lambda: ("first", "a") in [call[:2] for call in harness.calls[before:]])
    harness.change("a", 3)
    harness.create("d")
    harness.wait(lambda: harness.has_called("first", "d"))
    harness.change("d", 5)


@case("a watch that is silent without being closed")
def silent(harness: Harness) -> None:
    harness.proxy.silent = True
    changes(harness)
    time.sleep(0.5)
    harness.proxy.silent = False


@case("half-open connections")
def half_open(harness: Harness) -> None:
    meanwhile(harness, on("watch", "list", doing=FaultAction(hang=True), times=2), 1, cut=True)


@case("watches are cut all the time")
def cuts(harness: Harness) -> None:
    for value in range(2, 6):
        harness.change("a", value)
        harness.proxy.cut()
        time.sleep(0.5)
    harness.delete("b")
    harness.proxy.cut()
    harness.create("d")


@case("410 to watches")
def gone(harness: Harness) -> None:
    meanwhile(harness, on("watch", doing=rejection(410, "Expired"), times=3), 1, cut=True)


@case("410 to watches and lists")
def all_gone(harness: Harness) -> None:
    meanwhile(harness, on("watch", "list", doing=rejection(410, "Expired"), times=3), 1, cut=True)


@case("500 to watches and lists")
def broken(harness: Harness) -> None:
    meanwhile(harness, on("watch", "list", doing=rejection(500, "InternalError")), 2, cut=True)


@case("403 to watches and lists")
def forbidden(harness: Harness) -> None:
    meanwhile(harness, on("watch", "list", doing=rejection(403, "Forbidden")), 2, cut=True)


@case("429 with Retry-After to everything")
def too_many(harness: Harness) -> None:
    doing = rejection(429, "TooManyRequests", {"Retry-After": "1"})
    meanwhile(harness, on("watch", "list", "patch", doing=doing, times=6), 1, cut=True)


@case("ERROR records in the stream")
def error_records(harness: Harness) -> None:
    for code in (410, 500):
        status = {"kind": "Status", "status": "Failure", "code": code, "reason": "Expired", "message": "no"}
        record = {"type": "ERROR", "object": status}
        harness.proxy.injected.append(json.dumps(record).encode() + b"\n")
    changes(harness)


@case("garbage in the stream")
def garbage_records(harness: Harness) -> None:
    harness.proxy.injected += [b"<html>\n", b'{"type": "ADDED", "object": 5}\n', b'{"type": "UNKNOWN"}\n']
    changes(harness)


@case("garbage instead of answers")
def garbage(harness: Harness) -> None:
    meanwhile(harness, on("list", "patch", doing=FaultAction(garbage=True), times=4), 1, cut=True)


@case("truncated answers")
def truncated(harness: Harness) -> None:
    meanwhile(harness, on("list", "patch", doing=FaultAction(truncate=True), times=4), 1, cut=True)


@case("409 to patches")
def conflicts(harness: Harness) -> None:
    meanwhile(harness, on("patch", doing=rejection(409, "Conflict"), times=8), 1)


@case("422 to patches")
def unprocessable(harness: Harness) -> None:
    meanwhile(harness, on("patch", doing=rejection(422, "Invalid"), times=4), 1)


@case("500 to patches")
def broken_patches(harness: Harness) -> None:
    meanwhile(harness, on("patch", doing=rejection(500, "InternalError")), 2)


@case("patches applied, their answers lost")
def lost(harness: Harness) -> None:
    meanwhile(harness, on("patch", doing=FaultAction(lose=True), times=8), 1)


@case("patches slow by 2 s")
def slow(harness: Harness) -> None:
    meanwhile(harness, on("patch", doing=FaultAction(pause=2)), 1)


@case("the API server stalls")
def stalled(harness: Harness) -> None:
    until = time.monotonic() + 4

    def fault(_: Asked) -> FaultAction | None:
        return FaultAction(pause=max(0.0, until - time.monotonic()))

    meanwhile(harness, fault, 4)


@case("the API server is killed and restarted")
def restarted(harness: Harness) -> None:
    harness.proxy.stop()
    changes(harness)
    time.sleep(1.5)
    harness.proxy.start()


@case("401 for 4 s, then the same token")
def same_token(harness: Harness) -> None:
    until = time.monotonic() + 4
    unauthorized = rejection(401, "Unauthorized")
    with faulty(harness, lambda _: unauthorized if time.monotonic() < until else None):
        harness.proxy.cut()
        changes(harness)
        time.sleep(4)


@case("401 for 3 s, then a new token")
def new_token(harness: Harness) -> None:
    unauthorized = rejection(401, "Unauthorized")
    harness.proxy.faults.append(lambda asked: unauthorized if asked.token != "second" else None)
    harness.proxy.cut()
    changes(harness)
    time.sleep(3)
    harness.operator_process.order(token="second")


@case("another client strips our annotations")
def stripped(harness: Harness) -> None:
    harness.change("a", 2)
    for _ in range(8):
        for name in ("a", "c"):
            body = harness.cluster.get("parcels", name)
            keys = [key for key in body["metadata"].get("annotations", {}) if key.startswith(PREFIX)]
            harness.annotate(name, dict.fromkeys(keys))
        time.sleep(0.3)
    harness.delete("b")
    harness.create("d")


@case("malformed state on the objects")
def malformed(harness: Harness) -> None:
    harness.annotate("a", {LAST: "{", PREFIX + "first": "[", PREFIX + "second": "nonsense"})
    harness.annotate("b", {LAST: "}", PREFIX + "removal": "{", PREFIX + "first": '{"retries": "x"}'})
    harness.change("a", 2)
    harness.delete("b")
    harness.create("d")


@case("an object of 1.2 MB, and a large annotation")
def large(harness: Harness) -> None:
    harness.create("parcel-large", 1, blob="x" * 1_200_000)
    harness.create("parcel-large-note", 1)
    harness.annotate("parcel-large-note", {"example.com/note": "y" * 200_000})
    changes(harness)
    harness.wait(lambda: harness.has_called("second", "parcel-large"))
    harness.change("parcel-large", 2)
    harness.change("parcel-large-note", 2)


@case("a part of a patch is always rejected")
def rejected(harness: Harness) -> None:
    harness.create("picky")
    changes(harness)
    harness.wait(lambda: harness.has_called("second", "picky"))
    harness.change("picky", 2)


@case("created and deleted while the watch is down")
def unseen(harness: Harness) -> None:
    harness.proxy.stop()
    harness.create("e")
    harness.delete("e")
    changes(harness)
    harness.cluster.patch("parcels", "b", {"metadata": {"finalizers": None}})
    time.sleep(0.5)
    harness.proxy.start()
