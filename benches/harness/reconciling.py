"""The workloads of reconcilers, caches and the client: R1 to R4. The peers for R1 to R3 are in `peers/`."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Mapping
from typing import Any

from benches.harness.clusters import Cluster
from benches.harness.contestants import Contestant, Operator
from benches.harness.figures import Figures, Workload
from benches.harness.load import BENCHES, MAPS, Watching


def requeued(count: int) -> Workload:
    """Reconcilers that ask for the next call in one second."""
    window = 10

    def run(cluster: Cluster, contestant: Contestant) -> Figures:
        cluster.client.create(count)
        try:
            variables = {"expect": count, "window": window}
            with Operator(
                contestant, "reconcile_requeue", "requeue", cluster.kubeconfig, **variables
            ) as operator:
                operator.wait("window_start")
                cpu = operator.cpu()
                time.sleep(window)  # polling would delay the calls
                end = operator.wait("window_end")
                cpu = operator.cpu() - cpu
                return {
                    "CPU per call, µs": cpu / end["invocations"] * 1e6,
                    "lateness p50, ms": end["late_p50"] * 1e3,
                    "lateness p99, ms": end["late_p99"] * 1e3,
                    "peak memory, MiB": operator.memory().peak,
                }
        finally:
            cluster.client.clear()

    run.__doc__ = f"{count:,} reconcilers are called every second, for {window} seconds"
    return run


def owned(count: int) -> Workload:
    """The start with objects and their children, which are as desired."""

    def run(cluster: Cluster, contestant: Contestant) -> Figures:
        _create_families(cluster, count)
        writes = cluster.writes()
        with Operator(contestant, "reconcile_owned", "owned", cluster.kubeconfig, expect=count) as operator:
            done = operator.wait("done", limit=300)
            cpu = operator.quiesce()
            assert cluster.writes() == writes, "The reconcilers have changed something."
            return {
                "CPU, s": cpu,
                "wall, s": done["t"] - operator.started,
                "idle memory, MiB": operator.memory().now,
                "peak memory, MiB": operator.memory().peak,
            }

    run.__doc__ = f"Start with {count:,} objects and {count:,} children; the reconcilers change nothing"
    return run


def applied(count: int) -> Workload:
    """A burst of creations: each object gets a child and a condition."""

    def run(cluster: Cluster, contestant: Contestant) -> Figures:
        try:
            cluster.client.create(1, prefix="probe")
            with Operator(
                contestant, "reconcile_apply", "apply", cluster.kubeconfig, expect=count
            ) as operator:
                operator.wait("ready")
                cpu, writes = operator.quiesce(), cluster.writes()
                start, watching = time.time(), Watching(cluster.client, is_ready, count)
                cluster.client.create(count)
                last = max(watching.wait().values())
                cpu = operator.quiesce() - cpu
                return {
                    "CPU per object, ms": cpu / count * 1e3,
                    "wall, s": last - start,
                    "writes per object": (cluster.writes() - writes) / count - 1,
                    "peak memory, MiB": operator.memory().peak,
                }
        finally:
            cluster.client.ok("DELETE", MAPS)
            cluster.client.clear()

    run.__doc__ = f"{count:,} objects are created; each gets a child and a condition"
    return run


def reads(count: int) -> Workload:
    """Reads by the client, and from a cache."""

    def run(cluster: Cluster, contestant: Contestant) -> Figures:
        try:
            cluster.client.create(count)
            cluster.client.create(1, prefix="probe")
            with Operator(contestant, "reads", "reads", cluster.kubeconfig) as operator:
                cost = operator.wait("reads") | operator.wait("blocking_reads")
                return {
                    "a bare request, µs": cost["bare"],
                    "get in a coroutine beyond it, µs": cost["coroutine"] - cost["bare"],
                    "get in a thread beyond it, µs": cost["thread"] - cost["bare"],
                    "cache.get, µs": cost["cached"],
                    "cache.select of 100, µs": cost["selected"],
                }
        finally:
            cluster.client.clear()

    run.__doc__ = f"A thousand reads by the client, and from a cache of {count:,} objects"
    return run


def is_ready(body: Mapping[str, Any]) -> bool:
    """Whether the condition is set."""
    return any(it["type"] == "Ready" for it in body.get("status", {}).get("conditions", ()))


def _create_families(cluster: Cluster, count: int) -> None:
    """Create objects, each with its child."""
    client = cluster.client
    if client.call("GET", f"{BENCHES}/obj-{count - 1:06}")[0] == 404:
        client.create(count)
    child = functools.partial(_create_child, cluster)
    client.each(count, child)


def _create_child(cluster: Cluster, number: int) -> None:
    name = f"obj-{number:06}"
    if cluster.client.call("GET", f"{MAPS}/{name}")[0] != 404:
        return
    body = json.loads(cluster.client.ok("GET", f"{BENCHES}/{name}"))
    owner = {key: body[key] for key in ("apiVersion", "kind")} | {
        "name": name,
        "uid": body["metadata"]["uid"],
    }
    metadata = {"name": name, "ownerReferences": [{**owner, "controller": True}]}
    data = {"image": body["spec"]["image"]}
    child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    cluster.client.ok("POST", MAPS, child)
