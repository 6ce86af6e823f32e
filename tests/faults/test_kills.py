"""The operator's process is killed by SIGKILL at a chosen request, and a new one starts.

The proxy holds the request, kills the process, and forwards the request or drops it, so the point is exact.
`test_crashes.py` tests many more points, but within one process and in virtual time.
"""

import signal
import threading
import time
from collections.abc import Callable

import pytest

from tests.faults.fault_harness import CRD, Harness, Scenery
from tests.faults.fault_proxy import Asked, FaultAction

ACTS: dict[str, Callable[[Harness], None]] = {
    "a creation": lambda harness: harness.create("d"),
    "a change": lambda harness: harness.change("a", 2),
    "a deletion": lambda harness: harness.delete("b"),
}
POINTS = [
    ("a creation", 0),
    ("a creation", 2),
    ("a change", 0),
    ("a change", 1),
    ("a change", 3),
    ("a deletion", 0),
]
TIMEOUT = 30.0


class Crash:
    """Kills the operator at the patch with this number: before it is forwarded, or after."""

    def __init__(self, harness: Harness, number: int, *, is_done: bool) -> None:
        self.harness, self.number, self.is_done = harness, number, is_done
        self.has_come = threading.Event()
        self._count = 0
        self._lock = threading.Lock()

    def __call__(self, asked: Asked) -> FaultAction | None:
        if asked.verb != "patch" or "/parcels" not in asked.path:
            return None
        with self._lock:
            number, self._count = self._count, self._count + 1
            if number == self.number:
                self.harness.operator_process.stop(signal.SIGKILL)
                self.has_come.set()
                return FaultAction(lose=True) if self.is_done else FaultAction(drop=True)
        return None


@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("act", "number"), POINTS)
def test_nothing_is_lost_by_a_kill_at_a_request(act, number, is_done, kopf_cluster):
    kopf_cluster.apply(CRD)
    harness = Harness(kopf_cluster, f"a kill at patch {number} of {act}", Scenery(converge=TIMEOUT))
    with harness.running():
        for name in "abc":
            harness.create(name)
        harness.wait(harness.is_converged, TIMEOUT)
        crash = Crash(harness, number, is_done=is_done)
        harness.proxy.faults.append(crash)
        start = time.monotonic()
        ACTS[act](harness)
        assert crash.has_come.wait(TIMEOUT), "there was no such request"
        harness.operator_process.start()
        result = harness.result(start)
    assert result.survived, "\n".join(result.why)
    # Who was called for what the dead process could not write, is called again.
    assert result.doubles <= 1, result.why
