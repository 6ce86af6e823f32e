"""The holders of a Lease over time, as another client sees them."""

import threading
import time
from collections.abc import Callable

from kopf.testing import Cluster
from replicas import LEASE

INTERVAL = 0.01


class LeaseHistory:
    """Reads the Lease again and again, and records each change of its record with the monotonic time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.changes: list[tuple[float, str]] = []
        self.renewals: list[tuple[float, str]] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "LeaseHistory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def left(self, holder: str) -> float:
        """When the holder was seen for the last time to release or to lose the lease."""
        return next(
            at for at, seen in reversed(self.changes) if seen != holder and self._before(at) == holder
        )

    def last_renewal(self, holder: str) -> float:
        """When the last renewal of the holder was seen."""
        return max(at for at, seen in self.renewals if seen == holder)

    def holders(self) -> list[str]:
        """The holders in their order; empty strings are releases."""
        return [holder for _, holder in self.changes]

    def _before(self, at: float) -> str:
        return next((seen for moment, seen in reversed(self.changes) if moment < at), "")

    def _run(self) -> None:
        last = None
        while not self._ending.wait(INTERVAL):
            found = self._cluster.find("leases", LEASE)
            if found is None:
                continue
            now, spec = time.monotonic(), found["spec"]
            holder, record = (
                spec.get("holderIdentity") or "",
                (spec.get("holderIdentity"), spec.get("renewTime")),
            )
            if record == last:
                continue
            last = record
            self.renewals.append((now, holder))
            if not self.changes or self.changes[-1][1] != holder:
                self.changes.append((now, holder))


def wait(holds: Callable[[], object], seconds: float, what: str) -> float:
    """Wait until it holds; how many seconds it took."""
    begin = time.monotonic()
    while not holds():
        waited = time.monotonic() - begin
        assert waited < seconds, what
        time.sleep(0.01)
    return time.monotonic() - begin
