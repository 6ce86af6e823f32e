"""Custom resources that appear after the operator's start, disappear, and appear again."""

from tests.differential.harness.session import Session

CRDS = ["widgets", "gadgets"]
OWN_GROUP = True
INSTALLED = False


def run(s: Session) -> None:
    s.start(watch=["customresourcedefinitions"])
    s.quiesce()
    mark = s.watches
    s.install_crds("widgets")
    s.wait_watch("widgets", since=mark)
    s.create("widgets", "w", {"n": 1})
    s.settle("the kind has come")
    s.remove_crd("widgets")
    s.settle("the kind is gone", quiet=1.5)
    mark = s.watches
    s.install_crds("widgets", "gadgets")
    s.wait_watch("widgets", "gadgets", since=mark)
    s.create("widgets", "w", {"n": 2})
    s.create("gadgets", "g", {"n": 2})
    s.settle("the kinds are back")
    s.stop()
