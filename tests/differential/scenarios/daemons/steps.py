"""Daemons: stopped by deletion, by filters, by the operator's exit; cancelled; in threads; finished."""

from tests.differential.harness.session import Session

REQUEST_SLACK = 1  # a thread exits at once, or Kopf waits for it


def run(s: Session) -> None:
    s.start()
    s.create("widgets", "w", {"n": 1}, labels={"daemon": "sleepy"})
    s.create("widgets", "t", {"n": 1}, labels={"daemon": "sync"})
    s.create("widgets", "f", {"n": 1}, labels={"daemon": "short"})
    s.settle("running")
    s.patch("widgets", "w", {"spec": {"n": 2}})
    s.settle("not restarted by changes")
    s.patch("widgets", "t", {"metadata": {"labels": {"daemon": "none"}}})
    s.settle("a daemon does not match anymore", quiet=1.5)
    s.patch("widgets", "t", {"metadata": {"labels": {"daemon": "sync"}}})
    s.settle("it matches again")
    s.delete("widgets", "w")
    s.wait_gone("widgets", "w")
    s.settle("deleted")
    s.stop()
    s.snapshot("stopped")
    s.start()
    s.settle("spawned again after the restart")
    for name in ("t", "f"):
        s.delete("widgets", name)
        s.wait_gone("widgets", name)
    s.stop()
