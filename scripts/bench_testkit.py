"""Measures an operator's test: start a server and an operator, handle an object, stop both.

.venv/bin/python scripts/bench_testkit.py [ROUNDS]
"""

from __future__ import annotations

import logging
import pathlib
import statistics
import sys
import time
from collections.abc import Callable

import kopf
from kopf.testing import Cluster, Operator

CRD = pathlib.Path(__file__).resolve().parents[1] / "examples/01-minimal/crd.yaml"
GUEST = {
    "apiVersion": "hotel.examples.kopf.dev/v1",
    "kind": "Guest",
    "metadata": {"name": "alice"},
    "spec": {"room": "1"},
}
DAY = 86_400


def handlers() -> None:
    @kopf.on.create("guests", id="greet")
    def greet(retry: int, spec: kopf.Spec, **_: object) -> int:
        if retry < spec.get("delays", 0):
            raise kopf.TemporaryError("not yet", delay=3 * DAY)
        return retry


def start() -> None:
    with Cluster():
        pass


def handle() -> None:
    with Cluster() as cluster:
        cluster.apply(CRD)
        with Operator(cluster, handlers):
            cluster.create(GUEST)
            cluster.wait_for("guests", "alice", {"status": {"greet": 0}})


def wait_for_days() -> None:
    with Cluster() as cluster:
        cluster.freeze()
        cluster.apply(CRD)
        with Operator(cluster, handlers):
            cluster.create({**GUEST, "spec": {"room": 1, "delays": 10}})
            cluster.advance(30 * DAY)
            assert cluster.get("guests", "alice")["status"] == {"greet": 10}


def measure(title: str, run: Callable[[], None], rounds: int) -> None:
    run()  # imports and certificates
    times = []
    for _ in range(rounds):
        before = time.perf_counter()
        run()
        times.append((time.perf_counter() - before) * 1000)
    print(f"{title}: median {statistics.median(times):.1f} ms, max {max(times):.1f} ms")


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    measure("a cluster is started and stopped", start, rounds)
    measure("a round: start all, create, handle, assert, stop all", handle, rounds)
    measure("the same with ten delays of three days", wait_for_days, rounds)
