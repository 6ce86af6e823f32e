"""Children: adoption, labels, names, namespaces, owner references, garbage collection with the owner."""

from tests.differential.harness.session import Session

KINDS = ["widgets", "configmaps"]
WATCH = ["widgets", "configmaps"]


def run(s: Session) -> None:
    s.start()
    s.create("widgets", "parent", {"n": 1}, labels={"app": "diff"})
    s.settle("children made")
    s.patch("widgets", "parent", {"spec": {"n": 2}})
    s.settle("updated")
    s.delete("widgets", "parent", propagation="Background")
    s.wait_gone("widgets", "parent")
    s.wait_gone("configmaps", "labelled", timeout=90)
    s.wait_gone("configmaps", "named", timeout=90)
    s.settle("collected")
    s.stop()
