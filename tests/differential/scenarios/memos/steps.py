"""Memos: the operator's one is copied to each object's; parameters of handlers."""

from tests.differential.harness.session import Session


def run(s: Session) -> None:
    s.start()
    s.create("widgets", "a", {"n": 1})
    s.settle("the first one")
    s.create("widgets", "b", {"n": 1})
    s.settle("the second one")
    s.patch("widgets", "a", {"spec": {"n": 2}})
    s.patch("widgets", "b", {"spec": {"n": 2}})
    s.settle("changed")
    s.stop()
    s.start()
    s.patch("widgets", "a", {"spec": {"n": 3}})
    s.settle("forgotten after a restart")
    s.stop()
