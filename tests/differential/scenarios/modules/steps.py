"""An operator of several files and a module of a package, with relative imports and equal names."""

from tests.differential.harness.session import Session


def run(s: Session) -> None:
    s.start("handlers.py", "second.py", args=["-m", "package.main"])
    s.create("widgets", "w", {})
    s.settle("created")
    s.stop()
