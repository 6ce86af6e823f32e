"""Progress and the last handled state kept in the status, with an own finalizer."""

from tests.differential.harness.session import Session


def run(s: Session) -> None:
    s.start()
    s.create("widgets", "w", {"n": 1})
    s.wait_trace("two", 1)
    s.settle("in progress", quiet=0.5)
    s.wait_trace("two", 2)
    s.settle("created")
    s.patch("widgets", "w", {"spec": {"n": 2}})
    s.settle("changed")
    s.stop()
    s.start()
    s.settle("restarted")
    s.delete("widgets", "w")
    s.wait_gone("widgets", "w")
    s.stop()
