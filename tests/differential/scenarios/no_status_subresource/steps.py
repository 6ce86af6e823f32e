"""Kinds without the status subresource: results, patches and a handler for a status field in one body."""

from tests.differential.harness.session import Session

CRDS = ["gadgets"]


def run(s: Session) -> None:
    s.start()
    s.create("gadgets", "g", {"level": 1}, status={"outside": "early"})
    s.settle("created")
    s.patch("gadgets", "g", {"spec": {"level": 2}})
    s.settle("spec changed")
    s.patch("gadgets", "g", {"status": {"outside": "late"}})
    s.settle("status field changed")
    s.patch("gadgets", "g", {"status": {"unrelated": 5}})
    s.settle("unrelated status field changed")
    s.delete("gadgets", "g")
    s.wait_gone("gadgets", "g")
    s.stop()
