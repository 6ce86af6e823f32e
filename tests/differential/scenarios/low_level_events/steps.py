"""Handlers of raw events: listed, added, modified, deleted objects, results and errors, no finalizers."""

from tests.differential.harness.session import Session


def run(s: Session) -> None:
    s.create("widgets", "before", {"n": 0})
    s.start()
    s.settle("started")
    s.create("widgets", "after", {"n": 0})
    s.settle("created")
    s.patch("widgets", "after", {"metadata": {"labels": {"watch": "yes"}}})
    s.settle("labelled")
    s.patch("widgets", "before", {"spec": {"fail": True}})
    s.settle("failing")
    s.patch("widgets", "before", {"spec": {"fail": None, "n": 1}})
    s.settle("not failing")
    s.delete("widgets", "after")
    s.wait_gone("widgets", "after")
    s.settle("deleted")
    s.stop()
