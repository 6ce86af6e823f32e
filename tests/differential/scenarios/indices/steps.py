"""Indices of several kinds and forms, used in handlers and filters; updated and deleted objects."""

from tests.differential.harness.session import Session

CRDS = ["widgets", "gadgets"]
KINDS = ["gadgets"]
WATCH = ["widgets", "gadgets", "configmaps"]


def run(s: Session) -> None:
    s.create("widgets", "a", {"color": "red"}, labels={"listed": "yes"})
    s.create("widgets", "b", {"color": "red"})
    s.create("configmaps", "c", labels={"indexed": "yes"}, body={"data": {"k": "v", "l": "w"}})
    s.create("configmaps", "d", body={"data": {"k": "v2"}})
    s.start()
    s.create("gadgets", "g1", {})
    s.settle("indexed at the start")
    s.patch("widgets", "a", {"spec": {"color": "blue"}})
    s.patch("configmaps", "d", {"metadata": {"labels": {"indexed": "yes"}}})
    s.create("widgets", "e", {}, labels={"listed": "yes"})
    s.quiesce()
    s.create("gadgets", "g2", {})
    s.settle("changed")
    s.delete("widgets", "b")
    s.patch("widgets", "e", {"metadata": {"labels": {"listed": "no"}}})
    s.delete("configmaps", "c")
    s.quiesce()
    s.create("gadgets", "g3", {})
    s.settle("removed")
    s.patch("gadgets", "g1", {"spec": {"color": "red"}})
    s.settle("filtered out by the index")
    s.patch("gadgets", "g1", {"spec": {"color": "blue"}})
    s.settle("let in by the index")
    s.stop()
