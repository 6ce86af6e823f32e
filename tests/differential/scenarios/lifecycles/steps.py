"""A custom default lifecycle, lifecycles of sub-handlers."""

from tests.differential.harness.session import Session


def run(s: Session) -> None:
    s.start()
    s.create("widgets", "w", {"n": 1})
    s.wait_trace("two", 2)
    s.settle("created")
    s.patch("widgets", "w", {"spec": {"n": 2}})
    s.settle("changed")
    s.stop()
