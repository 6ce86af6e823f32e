"""Filters by field values (old, new, present, absent, callables), by when= and its combinators."""

from tests.differential.harness.session import Session


def run(s: Session) -> None:
    s.start()
    s.create("widgets", "w1", {"n": 1, "flag": "on"})
    s.create("widgets", "v2", {"n": 0})
    s.settle("created")
    s.patch("widgets", "w1", {"spec": {"n": 2}})
    s.settle("1 to 2")
    s.patch("widgets", "w1", {"spec": {"n": 3}})
    s.settle("2 to 3")
    s.patch("widgets", "w1", {"spec": {"n": 4, "flag": "off"}})
    s.settle("two fields")
    s.patch("widgets", "w1", {"spec": {"flag": None}})
    s.settle("flag removed")
    s.patch("widgets", "v2", {"spec": {"flag": False}})
    s.settle("flag added")
    s.patch("widgets", "w1", {"metadata": {"labels": {"quiet": ""}}, "spec": {"n": None}})
    s.settle("n removed")
    s.stop()
