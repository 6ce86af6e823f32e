"""Timers: intervals, initial delays, retries, results; stopped by deletion and by filters."""

from tests.differential.harness.session import Session

TRACE_LIMITS = {"regular": 3, "delayed": 2}
REQUEST_SLACK = 1


def run(s: Session) -> None:
    s.start()
    s.create("widgets", "w", {"n": 1}, labels={"late": "yes", "retry": "yes", "once": "yes"})
    s.wait_trace("regular", 3)
    s.wait_trace("delayed", 2)
    s.wait_trace("failing", 3)
    s.record_gaps("regular", 2)
    s.record_gaps("delayed", 1)
    s.record_gaps("failing", 2)
    s.sleep(0.5)
    s.snapshot("ticking")
    s.delete("widgets", "w")
    s.wait_gone("widgets", "w")
    s.settle("deleted", quiet=1.5)
    s.stop()
