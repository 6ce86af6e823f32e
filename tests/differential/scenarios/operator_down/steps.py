"""What happens to objects while the operator is down: created, changed twice, deleted, left alone."""

from tests.differential.harness.session import Session


def run(s: Session) -> None:
    s.start()
    for name in ("changed", "deleted", "same", "both"):
        s.create("widgets", name, {"n": 0})
    s.settle("created")
    s.stop()
    s.patch("widgets", "changed", {"spec": {"n": 1}})
    s.patch("widgets", "changed", {"spec": {"n": 2, "m": 1}})
    s.delete("widgets", "deleted")
    s.patch("widgets", "both", {"spec": {"n": 3}})
    s.delete("widgets", "both")
    s.create("widgets", "new", {"n": 5})
    s.snapshot("down")
    s.start()
    s.wait_gone("widgets", "deleted")
    s.wait_gone("widgets", "both")
    s.settle("up again")
    s.patch("widgets", "same", {"spec": {"n": 7}})
    s.settle("changed after the restart")
    s.stop()
