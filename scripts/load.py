"""`make load`: 100,000 objects of 2 kB, idle and under a burst of updates with a slow handler. It prints
times and memory, and checks only that the newest states were handled.

    python -m scripts.load --objects 100000 --rate 20000 --burst 20

The embedded API server runs in this process and gets the updates in batches, without a network. The operator
is another process, started with `--operate`. The burst runs twice: with an async handler and with a sync one.
"""

import argparse
import asyncio
import itertools
import json
import random
import sys
import time
from typing import Any

from kopf.testing import Cluster

from scripts.trials import LAST, OperatorProcess, make_crd

KIND = "loads.example.com"
COLLECTION = "/apis/example.com/v1/namespaces/default/loads"
WAYS = ("async", "sync")
THREADS = 100
BATCH = 500
"""The largest number of updates in a batch."""


def operate(way: str, slowness: float) -> None:
    """Run the operator. It answers each line of its input with a line of JSON."""
    import kopf

    seen: dict[str, Any] = {}
    begun: dict[str, float] = {}
    calls = itertools.count()

    @kopf.on.startup()
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.execution.max_workers = THREADS

    def note(name: str, spec: Any) -> None:
        next(calls)
        seen[name] = spec["value"]
        if name.startswith("fresh-"):
            begun.setdefault(name, time.monotonic())

    if way == "async":

        @kopf.on.create(KIND, id="handle")
        @kopf.on.update(KIND, id="handle")
        async def handle(name: str, spec: Any, **_: Any) -> None:
            note(name, spec)
            await asyncio.sleep(slowness)

    else:

        @kopf.on.create(KIND, id="handle")
        @kopf.on.update(KIND, id="handle")
        def handle_in_thread(name: str, spec: Any, **_: Any) -> None:
            note(name, spec)
            time.sleep(slowness)

    async def main() -> None:
        loop, reader, stop = asyncio.get_running_loop(), asyncio.StreamReader(), asyncio.Event()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        running = asyncio.create_task(kopf.operator(clusterwide=True, standalone=True, stop_flag=stop))
        while await reader.readline():
            # Handler threads may modify them: copy before serializing.
            state = {"calls": next(calls), "seen": dict(seen), "begun": dict(begun)}
            print(json.dumps(state), flush=True)
        stop.set()
        await running

    kopf.configure(quiet=True)
    asyncio.run(main())


class Report:
    """Prints a line for each phase."""

    def __init__(self, operator: OperatorProcess) -> None:
        self.operator = operator
        self.at, self.cpu, self.own = time.monotonic(), 0.0, time.process_time()

    def phase(self, what: str, more: str = "") -> None:
        cpu, own = self.operator.cpu(), time.process_time()
        now, most = (self.operator.status(it) / 1024 for it in ("VmRSS", "VmHWM"))
        seconds = time.monotonic() - self.at
        spent = f"CPU {cpu - self.cpu:6.1f} s (the server {own - self.own:5.1f})"
        print(f"{what:36} {seconds:6.1f} s  {spent}  {now:5.0f} MB, at most {most:5.0f}  {more}", flush=True)
        self.at, self.cpu, self.own = time.monotonic(), cpu, own
        self.operator.forget_peak()


def body(name: str, handled: bool = True) -> dict[str, Any]:
    spec = {"value": 0, "ballast": name.ljust(850, ".")}
    annotations = {LAST: json.dumps({"spec": spec}, separators=(",", ":")) + "\n"} if handled else {}
    meta = {"name": name, "annotations": annotations}
    return {"apiVersion": "example.com/v1", "kind": "Load", "metadata": meta, "spec": spec}


def wait(holds: Any, seconds: float = 600) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "timed out"
        time.sleep(0.05)


class Burst:
    """A burst of updates of many objects; every second update is of the same object."""

    def __init__(self, cluster: Cluster, options: argparse.Namespace, prefix: str) -> None:
        self.cluster, self.options, self.prefix = cluster, options, prefix
        self.chance = random.Random(1)
        self.expected: dict[str, Any] = {}
        self.fresh: dict[str, float] = {}
        self.count = 0
        self.seconds = 0.0
        self.streams = 0

    def run(self) -> None:
        start = time.monotonic()
        known, _ = self.cluster.requests_since(0)
        while (passed := time.monotonic() - start) < self.options.burst:
            due = min(int(passed * self.options.rate) - self.count, BATCH)
            self.cluster.call_all([self.update() for _ in range(due)])
            if len(self.fresh) < passed:
                name = f"fresh-{self.prefix}-{len(self.fresh)}"
                self.expected[name] = 0
                self.fresh[name] = time.monotonic()
                self.cluster.call_all([("POST", COLLECTION, body(name, handled=False))])
                known, requests = self.cluster.requests_since(known)
                self.streams += sum(it.method == "GET" for it in requests)
            if due < BATCH:
                time.sleep(0.005)
        self.seconds = time.monotonic() - start

    def update(self) -> tuple[str, str, Any]:
        self.count += 1
        number = self.chance.randrange(self.options.hot) if self.count % 2 else 0
        # The value must differ from that of the previous burst.
        value = f"{self.prefix} {self.count}"
        self.expected[name := f"load-{number}"] = value
        return "PATCH", f"{COLLECTION}/{name}", {"spec": {"value": value}}


def try_out(cluster: Cluster, way: str, options: argparse.Namespace) -> None:
    """Run one operator: start, idle phase, burst, and the time until all is handled."""
    cluster.clear_requests()
    operator = OperatorProcess(
        [__file__, "--operate", way, "--slowness", str(options.slowness)], cluster.kubeconfig
    )
    report = Report(operator)
    wait(lambda: any("watch=true" in it.query and "/loads" in it.path for it in cluster.requests))
    report.phase(f"{way}: start-up, until all objects are listed")
    time.sleep(2)
    each = (operator.status("VmRSS") - 40 * 1024) / options.objects
    report.phase("two seconds later", f"{each:.2f} kB per object above 40 MB")
    time.sleep(options.rest)
    report.phase("idle")
    before = operator.ask()["calls"]
    burst = Burst(cluster, options, way)
    burst.run()
    report.phase("burst of updates", f"{burst.count / burst.seconds:.0f} per second")
    in_burst = operator.ask()
    wait(lambda: operator.ask()["seen"] == burst.expected)
    state = operator.ask()
    calls = state["calls"] - before
    report.phase("until the newest states are handled", f"{calls} calls for {burst.count} updates")
    time.sleep(5)
    report.phase("five seconds later")
    delays = sorted(state["begun"][name] - created for name, created in burst.fresh.items())
    late = f"{delays[len(delays) // 2]:.2f} s in the middle, {delays[-1]:.2f} s at most"
    print(f"{len(delays)} objects that were created in the burst were first handled after {late}")
    print(f"{in_burst['calls'] - before} calls in the burst; {burst.streams} new watches and lists")
    operator.stop()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--operate", choices=WAYS)
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--hot", type=int, default=2_000, help="number of objects that the burst updates")
    parser.add_argument("--slowness", type=float, default=0.5, help="seconds for a call of the handler")
    parser.add_argument("--burst", type=float, default=20.0, help="seconds")
    parser.add_argument("--rate", type=float, default=20_000.0, help="updates per second, at most")
    parser.add_argument("--rest", type=float, default=20.0, help="seconds")
    parser.add_argument("--way", action="append", choices=WAYS)
    options = parser.parse_args()
    if options.operate:
        operate(options.operate, options.slowness)
        return 0
    with Cluster(tls=False) as cluster:
        cluster.apply(make_crd("Load"))
        for start in range(0, options.objects, BATCH):
            numbers = range(start, min(start + BATCH, options.objects))
            cluster.call_all([("POST", COLLECTION, body(f"load-{it}")) for it in numbers])
        size = len(json.dumps(cluster.get("loads", "load-7"), separators=(",", ":")))
        print(f"{options.objects} objects of {size} bytes")
        for way in options.way or WAYS:
            try_out(cluster, way, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
