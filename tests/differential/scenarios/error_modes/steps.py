"""Arbitrary and permanent errors, modes of errors, backoffs, limits of retries and time."""

from tests.differential.harness.session import Session


def run(s: Session) -> None:
    s.start()
    s.create("widgets", "w", {"a": 1})
    s.wait_trace("recovering", 2)
    s.settle("all done", quiet=2)
    s.record_gaps("limited", 1)
    s.record_gaps("recovering", 1)
    s.patch("widgets", "w", {"spec": {"a": 2}})
    s.settle("nothing for updates")
    s.stop()
