"""The workloads: each one runs a contestant once and yields its figures. CPU is that of the operator, from
the idle state before the work to the idle state after it. `harness/targets.py` refers to figures by name."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benches.harness import processes, reconciling
from benches.harness.clusters import Cluster
from benches.harness.contestants import Contestant, Operator
from benches.harness.figures import Figures, Workload
from benches.harness.load import BENCHES, Watching, is_handled, is_updated

POOL = 6
"""Threads for synchronous handlers in W8S."""


@contextmanager
def cleared(cluster: Cluster) -> Iterator[None]:
    """Removes all created objects afterwards."""
    try:
        yield
    finally:
        cluster.client.clear()


def startup(cluster: Cluster, contestant: Contestant) -> Figures:
    """W1. The start, and rest with one object"""
    figures: Figures = {}
    if not contestant.native:
        python = contestant.path
        figures["import kopf: CPU, ms"] = processes.run([python, "-c", "import kopf"]) * 1e3
        figures["kopf --version: CPU, ms"] = processes.run([python, "-m", "kopf", "--version"]) * 1e3
    with cleared(cluster):
        cluster.client.create(1, prefix="probe")
        with Operator(contestant, "startup", "startup", cluster.kubeconfig) as operator:
            ready = operator.wait("ready")
            figures["start to first handler: CPU, ms"] = operator.quiesce() * 1e3
            figures["start to first handler: wall, ms"] = (ready["t"] - operator.started) * 1e3
            figures["idle memory, MiB"] = operator.memory().now
    return figures


def resync(count: int) -> Workload:
    """So many handled objects are there when the operator starts."""

    def run(cluster: Cluster, contestant: Contestant) -> Figures:
        if cluster.client.call("GET", f"{BENCHES}/obj-{count - 1:06}")[0] == 404:
            cluster.client.create(count, handled=True)
        before, server = cluster.writes(), cluster.cpu()
        with Operator(contestant, "resync", "resync", cluster.kubeconfig, expect=count) as operator:
            done = operator.wait("done", limit=900)
            cpu = operator.quiesce()
            memory = operator.memory()
            return {
                "CPU, s": cpu,
                "CPU per object, µs": cpu / count * 1e6,
                "wall, s": done["t"] - operator.started,
                "peak memory, MiB": memory.peak,
                "idle memory, MiB": memory.now,
                "writes per object": (cluster.writes() - before) / count,
                "server's CPU, s": cluster.cpu() - server,
            }

    run.__doc__ = f"Start with {count:,} handled objects of 5 kB"
    return run


def burst(count: int, operator_name: str = "burst", mode: str = "burst", **variables: Any) -> Workload:
    """So many objects are created; the handler's result is stored."""

    def run(cluster: Cluster, contestant: Contestant) -> Figures:
        with cleared(cluster):
            cluster.client.create(1, prefix="probe")
            with Operator(contestant, operator_name, mode, cluster.kubeconfig, **variables) as operator:
                operator.wait("ready")
                cpu, switches, writes = operator.quiesce(), operator.switches(), cluster.writes()
                server, start = cluster.cpu(), time.time()
                watching = Watching(cluster.client, is_handled, count)
                cluster.client.create(count)
                last = max(watching.wait().values())
                cpu = operator.quiesce() - cpu
                return {
                    "CPU per object, ms": cpu / count * 1e3,
                    "wall, s": last - start,
                    "writes per object": (cluster.writes() - writes) / count - 1,
                    "switches per object": (operator.switches() - switches) / count,
                    "peak memory, MiB": operator.memory().peak,
                    "server's CPU per object, ms": (cluster.cpu() - server) / count * 1e3,
                }

    run.__doc__ = f"{count:,} objects are created, the handler's result is stored"
    return run


def posting(count: int) -> Workload:
    """The same with two Kubernetes events for each object."""
    run = burst(count, posting=1)
    run.__doc__ = f"{count:,} objects are created, the result is stored, two Kubernetes events are posted"
    return run


def sleepers(count: int, flavour: str) -> Workload:
    """Handlers that take 0.1 s each."""
    inner = burst(count, f"sleepers_{flavour}", "sleepers", workers=POOL)
    ideal = 0.1 * count / POOL if flavour == "sync" else 0.1

    def run(cluster: Cluster, contestant: Contestant) -> Figures:
        figures = inner(cluster, contestant)
        return {**figures, "makespan ÷ ideal": figures["wall, s"] / ideal}

    run.__doc__ = f"{count:,} objects are created, a handler ({flavour}) sleeps for 0.1 s, {POOL} threads"
    return run


def firehose(count: int, times: int) -> Workload:
    """Config maps are changed as fast as possible; a handler sees the events."""

    def run(cluster: Cluster, contestant: Contestant) -> Figures:
        revision = cluster.data.get("revision")
        if revision is None:
            cluster.client.create_maps(count)
            revision = 0
        target = revision + times
        variables = {"expect": count, "revision": target}
        with Operator(contestant, "firehose", "firehose", cluster.kubeconfig, **variables) as operator:
            operator.wait("ready")
            cpu, switches, start = operator.quiesce(), operator.switches(), time.time()
            for number in range(revision + 1, target + 1):
                cluster.client.update_maps(count, number)
            changed = time.time()
            cluster.data["revision"] = target
            done = operator.wait("done")
            events = count * times
            cpu = operator.quiesce() - cpu
            return {
                "CPU per event, µs": cpu / events * 1e6,
                "calls per event": (done["events"] - count) / events,
                "wall, s": done["t"] - start,
                "behind the last change, ms": max(0.0, done["t"] - changed) * 1e3,
                "switches per event": (operator.switches() - switches) / events,
                "peak memory, MiB": operator.memory().peak,
            }

    run.__doc__ = f"{count:,} config maps are changed {times} times, a handler sees each event"
    return run


def updates(count: int, times: int, *, field: bool) -> Workload:
    """Objects are changed, each time when all of them were handled."""

    def run(cluster: Cluster, contestant: Contestant) -> Figures:
        with cleared(cluster):
            cluster.client.create(count, handled=True)
            cluster.client.create(1, prefix="probe", handled=True)
            with Operator(contestant, "updates", "updates", cluster.kubeconfig, field=int(field)) as operator:
                operator.wait("ready")
                cpu, switches, writes = operator.quiesce(), operator.switches(), cluster.writes()
                start = time.time()
                for revision in range(1, times + 1):
                    condition = functools.partial(is_updated, revision)
                    watching = Watching(cluster.client, condition, count)
                    cluster.client.update(count, revision)
                    watching.wait()
                wall = time.time() - start
                cpu = operator.quiesce() - cpu
                changes = count * times
                return {
                    "CPU per update, ms": cpu / changes * 1e3,
                    "wall, s": wall,
                    "writes per update": (cluster.writes() - writes) / changes - 1,
                    "switches per update": (operator.switches() - switches) / changes,
                    "peak memory, MiB": operator.memory().peak,
                }

    handlers = "on.update and on.field" if field else "on.update"
    run.__doc__ = f"{count:,} objects are changed {times} times ({handlers})"
    return run


def growth(count: int, more: int) -> Workload:
    """Start with many objects, then create more. The cluster is reused for all sizes."""

    def run(cluster: Cluster, contestant: Contestant) -> Figures:
        present = cluster.data.get("present", 0)
        if present < count:
            cluster.client.create(count, start=present, handled=True)
            cluster.data["present"] = count
        with Operator(contestant, "resync", "resync", cluster.kubeconfig, expect=count) as operator:
            operator.wait("done", limit=900)
            cpu, memory = operator.quiesce(), operator.memory()
            watching = Watching(cluster.client, is_handled, more, prefix="new-")
            cluster.client.create(more, prefix="new")
            watching.wait()
            created = operator.quiesce() - cpu
        cluster.client.delete(more, prefix="new")
        return {
            "CPU, s": cpu,
            "CPU per additional object, ms": created / more * 1e3,
            "idle memory, MiB": memory.now,
            "peak memory, MiB": memory.peak,
        }

    run.__doc__ = f"Start with {count:,} handled objects; then create {more:,} more"
    return run


def latency(count: int) -> Workload:
    """One object after another, with pauses."""

    def run(cluster: Cluster, contestant: Contestant) -> Figures:
        with cleared(cluster):
            cluster.client.create(1, prefix="probe")
            with Operator(contestant, "latency", "latency", cluster.kubeconfig) as operator:
                operator.wait("ready")
                cpu, writes = operator.quiesce(), cluster.writes()
                times, handled = {}, []
                for number in range(count):
                    time.sleep(0.05)
                    name = f"obj-{number:06}"
                    times[name] = cluster.client.post(name, number)
                    handled.append(cluster.client.until(name, is_handled) - times[name][0])
                cpu, writes = operator.quiesce() - cpu, cluster.writes() - writes
                starts: dict[str, float] = {}
                for report in operator.reports("start"):
                    starts.setdefault(report["name"], report["t"])
                waits = [starts[name] - sent for name, (sent, _) in times.items()]
                beyond = [starts[name] - answered for name, (_, answered) in times.items()]
                return {
                    "start beyond the creation's round trip, p50, ms": at(beyond, 0.5) * 1e3,
                    "start beyond the creation's round trip, p99, ms": at(beyond, 0.99) * 1e3,
                    "start after the request, p50, ms": at(waits, 0.5) * 1e3,
                    "start after the request, p99, ms": at(waits, 0.99) * 1e3,
                    "handled after the request, p50, ms": at(handled, 0.5) * 1e3,
                    "CPU per object, ms": cpu / count * 1e3,
                    "writes per object": writes / count - 1,
                }

    run.__doc__ = f"{count:,} objects are created one after another"
    return run


def timers(count: int, flavour: str) -> Workload:
    """Timers of one second."""
    window = 10

    def run(cluster: Cluster, contestant: Contestant) -> Figures:
        with cleared(cluster):
            cluster.client.create(count, handled=True)
            variables = {"expect": count, "window": window}
            with Operator(
                contestant, f"timers_{flavour}", "timers", cluster.kubeconfig, **variables
            ) as operator:
                operator.wait("window_start")
                cpu = operator.cpu()
                time.sleep(window)  # polling would delay the handlers
                end = operator.wait("window_end")
                cpu = operator.cpu() - cpu
                return {
                    "CPU per call, µs": cpu / end["invocations"] * 1e6,
                    "lateness p50, ms": end["late_p50"] * 1e3,
                    "lateness p99, ms": end["late_p99"] * 1e3,
                    "peak memory, MiB": operator.memory().peak,
                }

    run.__doc__ = f"{count:,} timers of one second ({flavour}), for {window} seconds"
    return run


def daemons(count: int) -> Workload:
    """Daemons that wake up every second."""

    def run(cluster: Cluster, contestant: Contestant) -> Figures:
        with cleared(cluster):
            cluster.client.create(1, handled=True)
            one = _daemons(cluster, contestant, 1, settle=2)
            cluster.client.clear()
            cluster.client.create(count, handled=True)
            many = _daemons(cluster, contestant, count, settle=6)
        figures = {
            "memory for each, kB": (many["memory"] - one["memory"]) * 1024 / (count - 1),
            "idle CPU, % of a core": many["rest"],
            "writes per object": many["writes"] / count,
        }
        if many["writes"]:  # else the work is another one
            figures["CPU to start each, ms"] = (many["start"] - one["start"]) / (count - 1) * 1e3
        return figures

    run.__doc__ = f"{count:,} daemons that wake up every second"
    return run


def _daemons(cluster: Cluster, contestant: Contestant, count: int, *, settle: float) -> Figures:
    writes = cluster.writes()
    with Operator(contestant, "daemons", "daemons", cluster.kubeconfig, expect=count) as operator:
        operator.wait("window_start")
        time.sleep(settle)
        start, before = operator.cpu(), time.monotonic()
        time.sleep(4)
        rest = (operator.cpu() - start) / (time.monotonic() - before)
        # Work done after all of them run does not belong to the start.
        return {
            "memory": operator.memory().now,
            "start": start - settle * rest,
            "rest": rest * 100,
            "writes": cluster.writes() - writes,
        }


def at(values: list[float], part: float) -> float:
    """A percentile."""
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


WORKLOADS: dict[str, Workload] = {
    "W1": startup,
    "W2": resync(2000),
    "W2L": resync(5000),
    "W3": burst(1000),
    "W3P": posting(1000),
    "W4": firehose(2000, 5),
    "W5": updates(500, 4, field=False),
    "W5F": updates(500, 2, field=True),
    "W6": latency(100),
    "W7A": timers(1000, "async"),
    "W7S": timers(1000, "sync"),
    "W7D": daemons(1000),
    "W8A": sleepers(200, "async"),
    "W8S": sleepers(200, "sync"),
    "G1": growth(1000, 2000),
    "G10": growth(10_000, 2000),
    "G100": growth(100_000, 2000),
    "GB": burst(100_000),
    "R1": reconciling.requeued(1000),
    "R2": reconciling.owned(2000),
    "R3": reconciling.applied(1000),
    "R4": reconciling.reads(2000),
}
"""By their names. Those of growth are for ours, on the embedded server: `G1` to `G100` share a cluster."""

NOT_FOR_NATIVE = {"W7S", "W8S", "R4"}
"""There are no threads to be slept in, and no functions in Python that read."""

RECONCILING = ("R1", "R2", "R3", "R4")
"""Kopf has no reconcilers; their peers are separate programs: see `peers/`."""

USUAL = [name for name in WORKLOADS if name not in {"W8A", "GB", *RECONCILING}]
"""The default workloads of the table."""
