"""Startup with retries, cleanup with errors, the liveness endpoint with probes."""

from tests.differential.harness.session import Session


def run(s: Session) -> None:
    port = s.free_port()
    s.start(args=["--liveness", f"http://127.0.0.1:{port}/health"])
    s.create("widgets", "w", {})
    s.settle("created")
    s.observe("probed", s.http_get(f"http://127.0.0.1:{port}/health"))
    s.observe("another path", s.http_get(f"http://127.0.0.1:{port}/other")[0])
    s.quiesce()
    s.stop()
