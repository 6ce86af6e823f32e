"""A crash in the middle of a sequence of handlers: the finished ones are not repeated after a restart."""

from tests.differential.harness.session import Session


def run(s: Session) -> None:
    s.start()
    s.create("widgets", "w", {"sleep": 30})
    s.wait_trace("fourth", 1)
    s.quiesce(0.5)
    s.kill()
    s.snapshot("crashed")
    s.patch("widgets", "w", {"spec": {"sleep": 0}})
    s.start()
    s.wait_trace("fourth", 2)
    s.wait_trace("third", 2)
    s.settle("finished after the restart")
    s.kill()
    s.start()
    s.settle("nothing is left to do", quiet=1.5)
    s.stop()
