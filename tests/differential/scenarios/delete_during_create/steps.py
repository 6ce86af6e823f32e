"""An object is deleted while its creation is still being retried."""

from tests.differential.harness.session import Session


def run(s: Session) -> None:
    s.start()
    s.create("widgets", "w", {"a": 1})
    s.wait_trace("stubborn", 1)
    s.settle("retrying")
    s.delete("widgets", "w")
    s.wait_gone("widgets", "w")
    s.settle("deleted")
    s.create("widgets", "w", {"a": 2})
    s.wait_trace("stubborn", 2)
    s.settle("the same name again")
    s.stop()
