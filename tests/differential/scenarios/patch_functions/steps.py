"""Transformation functions in patches: lists, finalizers, the status, with no changes, on deletion."""

from tests.differential.harness.session import Session


def run(s: Session) -> None:
    s.start()
    s.create("widgets", "w", {"items": ["own"]})
    s.settle("created")
    s.patch("widgets", "w", {"spec": {"touch": 1}})
    s.settle("touched")
    s.delete("widgets", "w")
    s.wait_gone("widgets", "w")
    s.settle("deleted")
    s.stop()
