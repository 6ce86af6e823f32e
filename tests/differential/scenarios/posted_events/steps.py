"""Kubernetes events: all explicit functions, long messages, several objects, own reporter."""

from tests.differential.harness.session import Session


def run(s: Session) -> None:
    s.start()
    s.create("widgets", "w", {"n": 1})
    s.settle("created", quiet=1)
    s.patch("widgets", "w", {"spec": {"n": 2}})
    s.settle("updated", quiet=1)
    s.stop()
