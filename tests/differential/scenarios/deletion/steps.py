"""Mandatory deletion handlers hold the object by a finalizer, optional ones do not; a foreign finalizer."""

from tests.differential.harness.session import Session

CRDS = ["widgets", "gadgets"]


def run(s: Session) -> None:
    s.start()
    s.create("widgets", "held", {})
    s.create("gadgets", "free", {})
    s.create("gadgets", "foreign", {}, finalizers=["example.dev/foreign"])
    s.settle("created")
    s.delete("widgets", "held")
    s.wait_trace("mandatory", 1)
    s.settle("the first attempt", quiet=0.4)
    s.wait_gone("widgets", "held")
    s.delete("gadgets", "free")
    s.wait_gone("gadgets", "free")
    s.delete("gadgets", "foreign")
    s.settle("held by a foreign finalizer")
    s.patch("gadgets", "foreign", {"metadata": {"finalizers": None}})
    s.wait_gone("gadgets", "foreign")
    s.settle("all gone")
    s.stop()
