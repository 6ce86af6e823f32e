"""Sub-handlers made in a loop, nested ones, with temporary and permanent failures."""

from tests.differential.harness.session import Session


def run(s: Session) -> None:
    s.start()
    s.create("widgets", "good", {"items": ["a", "b"]})
    s.settle("all succeed")
    s.create("widgets", "mixed", {"items": ["flaky", "broken", "c"]})
    s.wait_trace("child flaky", 3, "mixed")
    s.settle("some fail")
    s.patch("widgets", "good", {"spec": {"items": ["b", "d"]}})
    s.settle("another set of items")
    s.patch("widgets", "good", {"spec": {"items": []}})
    s.settle("no items")
    s.stop()
