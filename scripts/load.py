"""`make load`: 100,000 objects of 2 kB, at rest, and under a storm of updates against a slow handler. It owns
the load and the figures; it judges nothing but that the newest states were handled.

    python scripts/load.py --objects 100000 --rate 20000 --storm 20

The cluster is in the memory of this process, and the updates reach it without a network, in batches; the
operator is another process, started with `--operate`. It has the same storm twice: with a handler that is a
coroutine, and with one that needs a thread.
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
from trials import LAST, Patient, definition

KIND = "loads.example.com"
COLLECTION = "/apis/example.com/v1/namespaces/default/loads"
WAYS = ("async", "sync")
THREADS = 100
BATCH = 500
"""How many updates are made at once, at most."""


def operate(way: str, slowness: float) -> None:
    """The operator: a line of JSON for each line of its input."""
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
            # Threads may be adding to them: copies are made at once.
            told = {"calls": next(calls), "seen": dict(seen), "begun": dict(begun)}
            print(json.dumps(told), flush=True)
        stop.set()
        await running

    kopf.configure(quiet=True)
    asyncio.run(main())


class Tale:
    """Prints a line for each part of the story."""

    def __init__(self, patient: Patient) -> None:
        self.patient = patient
        self.at, self.cpu, self.own = time.monotonic(), 0.0, time.process_time()

    def tell(self, what: str, more: str = "") -> None:
        cpu, own = self.patient.cpu(), time.process_time()
        now, most = (self.patient.status(it) / 1024 for it in ("VmRSS", "VmHWM"))
        seconds = time.monotonic() - self.at
        spent = f"CPU {cpu - self.cpu:6.1f} s (the server {own - self.own:5.1f})"
        print(f"{what:36} {seconds:6.1f} s  {spent}  {now:5.0f} MB, at most {most:5.0f}  {more}", flush=True)
        self.at, self.cpu, self.own = time.monotonic(), cpu, own
        self.patient.forget_peak()


def body(name: str, handled: bool = True) -> dict[str, Any]:
    spec = {"value": 0, "ballast": name.ljust(850, ".")}
    annotations = {LAST: json.dumps({"spec": spec}, separators=(",", ":")) + "\n"} if handled else {}
    meta = {"name": name, "annotations": annotations}
    return {"apiVersion": "example.com/v1", "kind": "Load", "metadata": meta, "spec": spec}


def wait(holds: Any, seconds: float = 600) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it has not come"
        time.sleep(0.05)


class Storm:
    """Updates of many objects; every second one is of one and the same."""

    def __init__(self, cluster: Cluster, options: argparse.Namespace, prefix: str) -> None:
        self.cluster, self.options, self.prefix = cluster, options, prefix
        self.chance = random.Random(1)
        self.wanted: dict[str, Any] = {}
        self.fresh: dict[str, float] = {}
        self.count = 0
        self.seconds = 0.0
        self.streams = 0

    def rage(self) -> None:
        start = time.monotonic()
        known = self.cluster._embedded.journal_count()
        while (passed := time.monotonic() - start) < self.options.storm:
            due = min(int(passed * self.options.rate) - self.count, BATCH)
            self.cluster._embedded.call_all([self.update() for _ in range(due)])
            if len(self.fresh) < passed:
                name = f"fresh-{self.prefix}-{len(self.fresh)}"
                self.wanted[name] = 0
                self.fresh[name] = time.monotonic()
                self.cluster._embedded.call_all([("POST", COLLECTION, body(name, handled=False))])
                known, entries = self.cluster._embedded.journal(known)
                self.streams += sum(it[1] == "GET" for it in entries)
            if due < BATCH:
                time.sleep(0.005)
        self.seconds = time.monotonic() - start

    def update(self) -> tuple[str, str, Any]:
        self.count += 1
        number = self.chance.randrange(self.options.hot) if self.count % 2 else 0
        # The other way's storm must have left another value.
        value = f"{self.prefix} {self.count}"
        self.wanted[name := f"load-{number}"] = value
        return "PATCH", f"{COLLECTION}/{name}", {"spec": {"value": value}}


def try_out(cluster: Cluster, way: str, options: argparse.Namespace) -> None:
    """One operator: its start, its rest, its storm, and what has come of that."""
    cluster.clear_requests()
    patient = Patient([__file__, "--operate", way, "--slowness", str(options.slowness)], cluster.kubeconfig)
    tale = Tale(patient)
    wait(lambda: any("watch=true" in it.query and "/loads" in it.path for it in cluster.requests))
    tale.tell(f"{way}: start-up, until all is known")
    time.sleep(2)
    each = (patient.status("VmRSS") - 40 * 1024) / options.objects
    tale.tell("two seconds later", f"{each:.2f} kB per object above 40 MB")
    time.sleep(options.rest)
    tale.tell("at rest")
    before = patient.ask()["calls"]
    storm = Storm(cluster, options, way)
    storm.rage()
    tale.tell("a storm of updates", f"{storm.count / storm.seconds:.0f} per second")
    in_storm = patient.ask()
    wait(lambda: patient.ask()["seen"] == storm.wanted)
    told = patient.ask()
    calls = told["calls"] - before
    tale.tell("until the newest states are handled", f"{calls} calls for {storm.count} updates")
    time.sleep(5)
    tale.tell("five seconds later")
    delays = sorted(told["begun"][name] - created for name, created in storm.fresh.items())
    late = f"{delays[len(delays) // 2]:.2f} s in the middle, {delays[-1]:.2f} s at most"
    print(f"{len(delays)} objects that were created in the storm were begun with after {late}")
    print(f"{in_storm['calls'] - before} calls in the storm; {storm.streams} streams and lists anew")
    patient.stop()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--operate", choices=WAYS)
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--hot", type=int, default=2_000, help="how many objects the storm is about")
    parser.add_argument("--slowness", type=float, default=0.5, help="seconds for a call of the handler")
    parser.add_argument("--storm", type=float, default=20.0, help="seconds")
    parser.add_argument("--rate", type=float, default=20_000.0, help="updates per second, at most")
    parser.add_argument("--rest", type=float, default=20.0, help="seconds")
    parser.add_argument("--way", action="append", choices=WAYS)
    options = parser.parse_args()
    if options.operate:
        operate(options.operate, options.slowness)
        return 0
    with Cluster(tls=False) as cluster:
        cluster.apply(definition("Load"))
        for start in range(0, options.objects, BATCH):
            numbers = range(start, min(start + BATCH, options.objects))
            cluster._embedded.call_all([("POST", COLLECTION, body(f"load-{it}")) for it in numbers])
        size = len(json.dumps(cluster.get("loads", "load-7"), separators=(",", ":")))
        print(f"{options.objects} objects of {size} bytes")
        for way in options.way or WAYS:
            try_out(cluster, way, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
