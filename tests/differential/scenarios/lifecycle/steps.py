"""Creation, update and deletion of a few objects, results in the status."""

from tests.differential.harness.session import Session


def run(s: Session) -> None:
    s.start()
    s.create("widgets", "one", {"size": 1, "nested": {"a": [1, 2], "b": "x"}}, labels={"color": "red"})
    s.settle("created")
    s.patch("widgets", "one", {"spec": {"size": 2, "nested": {"b": None, "c": True}}})
    s.settle("updated")
    s.patch("widgets", "one", {"metadata": {"labels": {"color": "blue"}, "annotations": {"note": "hi"}}})
    s.settle("relabelled")
    s.patch("widgets", "one", {"status": {"outside": "change"}}, sub="status")
    s.settle("status changed from outside")
    s.create("widgets", "two", {})
    s.settle("another one")
    s.delete("widgets", "one")
    s.wait_gone("widgets", "one")
    s.settle("deleted")
    s.delete("widgets", "two")
    s.wait_gone("widgets", "two")
    s.stop()
