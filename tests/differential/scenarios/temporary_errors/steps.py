"""Temporary errors: delays, progress on the object between the attempts, the limit of retries."""

from tests.differential.harness.session import Session


def run(s: Session) -> None:
    s.start()
    s.create("widgets", "w", {"failures": 2})
    s.wait_trace("flaky", 1)
    s.settle("between the attempts", quiet=0.4)
    s.wait_trace("flaky", 3)
    s.settle("succeeded")
    s.record_gaps("flaky", 2)
    s.patch("widgets", "w", {"spec": {"failures": 0}})
    s.wait_trace("never", 3)
    s.settle("gave up")
    s.create("widgets", "w2", {"failures": 0})
    s.settle("another object")
    s.stop()
