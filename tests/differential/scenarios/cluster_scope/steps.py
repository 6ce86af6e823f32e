"""A cluster-wide operator (-A): cluster-scoped objects, objects in several namespaces."""

from tests.differential.harness.session import Session

CRDS = ["realms", "widgets"]
OWN_GROUP = True


def run(s: Session) -> None:
    second = f"{s.token}-second"
    s.namespace(second)
    s.create("realms", "old", {"n": 1})
    s.start(scope=["-A"])
    s.create("realms", "new", {"n": 1}, labels={"a": "b"})
    s.create("widgets", "w", {"n": 1})
    s.create("widgets", "w", {"n": 1}, ns=second)
    s.settle("created")
    s.patch("realms", "old", {"spec": {"n": 2}})
    s.patch("widgets", "w", {"spec": {"n": 2}}, ns=second)
    s.settle("changed")
    s.delete("realms", "new")
    s.wait_gone("realms", "new")
    third = f"{s.token}-third"
    s.namespace(third)
    s.create("widgets", "w", {"n": 3}, ns=third)
    s.settle("a namespace made at runtime", quiet=1)
    s.stop()
