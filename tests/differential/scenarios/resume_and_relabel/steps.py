"""Resuming with filters and retries, one function for creation and resuming, several restarts."""

from tests.differential.harness.session import Session


def run(s: Session) -> None:
    s.create("widgets", "early", {"x": 1}, labels={"role": "main"})
    s.create("widgets", "other", {"x": 1})
    s.start()
    s.settle("created, not resumed")
    s.stop()
    s.start()
    s.wait_trace("resumed_main", 2)
    s.settle("resumed")
    s.patch("widgets", "other", {"metadata": {"labels": {"role": "main"}}})
    s.settle("no resuming at runtime")
    s.stop()
    s.start()
    s.wait_trace("resumed_main", 6)
    s.settle("both resumed")
    s.stop()
