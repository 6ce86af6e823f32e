"""Filters by labels and annotations: values, presence, absence, callables; finalizers follow them."""

from tests.differential.harness.session import Session


def run(s: Session) -> None:
    s.start()
    s.create("widgets", "gold", {}, labels={"tier": "gold"})
    s.create("widgets", "tin", {}, labels={"tier": "ti"}, annotations={"skip": "no", "note": "x"})
    s.create("widgets", "plain", {})
    s.settle("created")
    s.patch("widgets", "gold", {"metadata": {"labels": {"zone": "north"}}})
    s.settle("the second label arrives")
    s.patch("widgets", "plain", {"metadata": {"labels": {"tier": "gold"}}})
    s.settle("an object that was ignored begins to match")
    s.patch("widgets", "tin", {"metadata": {"labels": {"protect": "yes"}}})
    s.settle("protected")
    s.patch("widgets", "tin", {"metadata": {"labels": {"protect": None}}})
    s.settle("not protected anymore")
    s.patch("widgets", "gold", {"metadata": {"labels": {"protect": "yes", "tier": None}}})
    s.settle("another one protected")
    for name in ("gold", "tin", "plain"):
        s.delete("widgets", name)
        s.wait_gone("widgets", name)
    s.settle("deleted")
    s.stop()
