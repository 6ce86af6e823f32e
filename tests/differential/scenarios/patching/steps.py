"""Merge-patches of the spec, metadata and status from handlers, also such that cause further changes."""

from tests.differential.harness.session import Session


def run(s: Session) -> None:
    s.start()
    s.create("widgets", "w", {"removed": "soon", "kept": 1})
    s.settle("created")
    s.patch("widgets", "w", {"spec": {"source": "hello"}})
    s.settle("copied")
    s.patch("widgets", "w", {"metadata": {"labels": {"stamp": "requested"}}})
    s.settle("stamped")
    s.stop()
