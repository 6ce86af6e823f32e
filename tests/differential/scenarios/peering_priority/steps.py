"""Two operators with different priorities: the lower one pauses while the higher one is there."""

from tests.differential.harness.session import Session

SKIP_SECTIONS = ["logs"]


def run(s: Session) -> None:
    s.create("kopfpeerings", s.token)
    peered = {"standalone": False}
    s.start(name="low", args=["--peering", s.token, "--priority", 10], **peered)
    s.create("widgets", "a", {"n": 1})
    s.settle("the lower one works")
    s.start(name="high", args=["--peering", s.token, "--priority", 20], **peered)
    s.wait_log("Pausing operations in favour of", name="low")
    s.create("widgets", "b", {"n": 1})
    s.patch("widgets", "a", {"spec": {"n": 2}})
    s.settle("the higher one works")
    mark = s.watches
    s.stop("high")
    s.wait_watch("widgets", since=mark, name="low")
    s.patch("widgets", "b", {"spec": {"n": 3}})
    s.settle("the lower one again")
    s.stop("low")
    s.settle("both are gone")
