"""`make load`: 100,000 objects of 2 kB, at rest, and under a storm of updates against a slow handler. It owns
the load and the figures; it judges nothing but that the newest states were handled.

    python scripts/load.py --objects 100000 --storm 10

The cluster is in the memory of this process; the operator is another one, started with `--operate`.
"""

import argparse
import asyncio
import json
import os
import pathlib
import random
import subprocess
import sys
import time
from typing import Any

from kopf.testing import Cluster

KIND = "loads.example.com"
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: loads.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: loads, singular: load, kind: Load, listKind: LoadList}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""
LAST = "kopf.zalando.org/last-handled-configuration"
SLOWNESS = 0.2
HOT = 2_000
"""How many objects the storm is about."""
COLLECTION = "/apis/example.com/v1/namespaces/default/loads"


def operate() -> None:
    """The operator: a line of JSON for each line of its input."""
    import kopf

    seen: dict[str, int] = {}
    begun: dict[str, float] = {}
    calls = 0

    @kopf.on.startup()
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False

    @kopf.on.create(KIND, id="handle")
    @kopf.on.update(KIND, id="handle")
    async def handle(name: str, spec: Any, **_: Any) -> None:
        nonlocal calls
        calls += 1
        seen[name] = spec["value"]
        if name.startswith("fresh-"):
            begun.setdefault(name, time.monotonic())
        await asyncio.sleep(SLOWNESS)

    async def main() -> None:
        loop, reader, stop = asyncio.get_running_loop(), asyncio.StreamReader(), asyncio.Event()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        running = asyncio.create_task(kopf.operator(clusterwide=True, standalone=True, stop_flag=stop))
        while await reader.readline():
            print(json.dumps({"calls": calls, "seen": seen, "begun": begun}), flush=True)
        stop.set()
        await running

    kopf.configure(quiet=True)
    asyncio.run(main())


class Patient:
    """The process of the operator."""

    def __init__(self, kubeconfig: pathlib.Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--operate"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "KUBECONFIG": str(kubeconfig)}, text=True,
        )  # fmt: skip

    def ask(self) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def figures(self) -> tuple[float, float, float]:
        """CPU seconds, and megabytes now and at most."""
        place = pathlib.Path("/proc", str(self.process.pid))
        ticks = (place / "stat").read_text().rsplit(")", 1)[1].split()
        status = dict(it.split(":", 1) for it in (place / "status").read_text().splitlines())
        now, most = (int(status[it].split()[0]) / 1024 for it in ("VmRSS", "VmHWM"))
        return (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK"), now, most

    def forget_peak(self) -> None:
        pathlib.Path("/proc", str(self.process.pid), "clear_refs").write_text("5")

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


class Tale:
    """Prints a line for each part of the story."""

    def __init__(self, patient: Patient) -> None:
        self.patient = patient
        self.at, (self.cpu, _, _) = time.monotonic(), patient.figures()

    def tell(self, what: str, more: str = "") -> None:
        cpu, now, most = self.patient.figures()
        seconds = time.monotonic() - self.at
        figures = f"{seconds:7.1f} s  CPU {cpu - self.cpu:7.2f} s  {now:6.0f} MB, at most {most:6.0f}"
        print(f"{what:36} {figures}  {more}", flush=True)
        self.at, self.cpu = time.monotonic(), cpu
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


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--operate", action="store_true")
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--storm", type=float, default=10.0, help="seconds")
    parser.add_argument("--rate", type=float, default=20_000.0, help="updates per second, at most")
    parser.add_argument("--rest", type=float, default=20.0, help="seconds")
    options = parser.parse_args()
    if options.operate:
        operate()
        return 0
    chance = random.Random(1)
    with Cluster(tls=False) as cluster:
        cluster.apply(DEFINITION)
        call = cluster._embedded.call
        for number in range(options.objects):
            call("POST", COLLECTION, body(f"load-{number}"))
        size = len(json.dumps(cluster.get("loads", "load-7"), separators=(",", ":")))
        print(f"{options.objects} objects of {size} bytes")
        patient = Patient(cluster.kubeconfig)
        tale = Tale(patient)
        wait(lambda: any("watch=true" in it.query and "/loads" in it.path for it in cluster.requests))
        tale.tell("start-up, until all is known")
        time.sleep(2)
        _, settled, _ = patient.figures()
        tale.tell(
            "two seconds later", f"{(settled - 40) * 1024 / options.objects:.2f} kB per object above 40 MB"
        )
        time.sleep(options.rest)
        tale.tell("at rest")
        wanted, count, start = {}, 0, time.monotonic()
        fresh: dict[str, float] = {}
        while (passed := time.monotonic() - start) < options.storm:
            if count > passed * options.rate:
                time.sleep(0.001)
                continue
            count += 1
            # Every second change is of one and the same object.
            name = f"load-{chance.randrange(HOT) if count % 2 else 0}"
            wanted[name] = count
            call("PATCH", f"{COLLECTION}/{name}", {"spec": {"value": count}})
            if len(fresh) < passed:
                fresh[name := f"fresh-{len(fresh)}"] = time.monotonic()
                call("POST", COLLECTION, body(name, handled=False))
                wanted[name] = 0
        tale.tell("a storm of updates", f"{count / options.storm:.0f} per second")
        wait(lambda: patient.ask()["seen"] == wanted)
        told = patient.ask()
        tale.tell("until the newest states are handled", f"{told['calls']} calls for {count} updates")
        time.sleep(5)
        tale.tell("five seconds later")
        delays = sorted(told["begun"][name] - created for name, created in fresh.items())
        print(f"{len(delays)} objects created in the storm were begun with after {delays[-1]:.2f} s at most")
        patient.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
