"""Rejected patches: of the status, every third one, and without the permission to get objects."""

import itertools
import threading
import time

from tests.faults.cases import case, changes, faulty
from tests.faults.fault_harness import KIND, Harness
from tests.faults.fault_proxy import Asked, Fault, FaultAction, rejection

REASONS = {
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


def rejected_status(code: int, rejected: list[str]) -> Fault:
    """The fault for patches of the status. The paths of rejected patches are added to the list."""

    def fault(asked: Asked) -> FaultAction | None:
        if asked.verb != "patch" or not asked.path.endswith("/status"):
            return None
        rejected.append(asked.path)
        return rejection(code, REASONS[code])

    return fault


def status_row(code: int) -> None:
    def rejected(harness: Harness) -> None:
        paths: list[str] = []
        with faulty(harness, rejected_status(code, paths)):
            changes(harness)
            harness.wait(lambda: not exists(harness, "b"))
            is_gone = not exists(harness, "b")
            has_status = any(path.endswith("/parcels/b/status") for path in paths)
            harness.wait(lambda: harness.has_called("second", "d"))
            time.sleep(1)
        demand = "the deletion does not wait for the status"
        harness.demands.append((demand, lambda: is_gone and not has_status))

    case(f"{code} to patches of the status")(rejected)


def exists(harness: Harness, name: str) -> bool:
    return any(body["metadata"]["name"] == name for body in harness.cluster.list(KIND))


for code in REASONS:
    status_row(code)


def every_third(doing: FaultAction) -> Fault:
    numbers, lock = itertools.count(1), threading.Lock()

    def fault(asked: Asked) -> FaultAction | None:
        if asked.verb != "patch" or "/parcels" not in asked.path:
            return None
        with lock:
            return doing if next(numbers) % 3 == 0 else None

    return fault


@case("422 to every third patch for 10 s, with 40 objects")
def every_third_patch(harness: Harness) -> None:
    with faulty(harness, every_third(rejection(422, "Invalid"))):
        for number in range(40):
            harness.create(f"third-{number}")
        changes(harness)
        time.sleep(10)


@case("another writer all the time, and no permission to get")
def busy_writer(harness: Harness) -> None:
    def fault(asked: Asked) -> FaultAction | None:
        # Single objects only: the path of a list has no name.
        is_get = asked.method == "GET" and not asked.watch and "/parcels/" in asked.path
        return rejection(403, "Forbidden") if is_get else None

    stopping = threading.Event()
    rounds = 0

    def write() -> None:
        nonlocal rounds
        for number in itertools.count():
            rounds = number
            if stopping.wait(0.01):
                return
            for name in ("a", "c"):
                harness.cluster.patch(KIND, name, {"status": {"writer": number}}, subresource="status")

    with faulty(harness, fault):
        writer = threading.Thread(target=write)
        writer.start()
        try:
            changes(harness)
            for value in (3, 4):
                harness.change("a", value)
                time.sleep(1)
            before = rounds
            harness.create("e")
            harness.delete("e")
            harness.wait(lambda: not exists(harness, "e"))
            meanwhile = rounds - before
        finally:
            stopping.set()
            writer.join(10)
    # Usually, there is at most one round. A busy machine slows the other writer, too.
    harness.demands.append(("a deletion does not wait for the other writer", lambda: meanwhile < 100))
