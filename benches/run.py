"""Runs the benchmarks and prints tables of medians: see README.md."""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import shlex
import signal
import sys
import time

from benches.harness import clusters, tables
from benches.harness.contestants import Contestant
from benches.harness.figures import Figures
from benches.harness.targets import DECORATED
from benches.harness.workloads import NOT_FOR_NATIVE, RECONCILING, USUAL, WORKLOADS


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ours", required=True, metavar="PYTHON", help="with our package and nothing else")
    parser.add_argument("--reference", metavar="PYTHON", help="with Kopf 1.45 and nothing else")
    parser.add_argument("--before", metavar="PYTHON", help="with another version of ours, to compare with")
    parser.add_argument(
        "--newest", metavar="PYTHON", help="the newest Python, with our package and nothing else"
    )
    parser.add_argument(
        "--handlers", choices=("bare", "both"), default="both", help="both: also behind a decorator (default)"
    )
    parser.add_argument(
        "--native", action="append", default=[], metavar="NAME=PROGRAM", help="obeys the same variables"
    )
    parser.add_argument(
        "--with-options",
        action="append",
        default=[],
        metavar="NAME=OPTIONS",
        help="also ours with these options of `kopf run`, such as leader election",
    )
    parser.add_argument(
        "--controlplane",
        action="store_true",
        help="on etcd and kube-apiserver of KUBEBUILDER_ASSETS; else on the embedded API server",
    )
    parser.add_argument("--workloads", help=f"of {','.join(WORKLOADS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path, help="all figures; those that are there are kept")
    parser.add_argument("--markdown", type=pathlib.Path, help="the tables")
    return parser.parse_args()


def contestants(options: argparse.Namespace) -> list[Contestant]:
    """In the order of their turns: those with bare handlers first, ours last among them."""
    bare = [Contestant("reference", options.reference)] if options.reference else []
    for item in options.native:
        name, _, path = item.partition("=")
        bare.append(Contestant(name, path, native=True))
    if options.before:
        bare.append(Contestant("before", options.before))
    bare.append(Contestant("ours", options.ours))
    more = [Contestant(tables.NEWEST, options.newest)] if options.newest else []
    for item in options.with_options:
        name, _, words = item.partition("=")
        more.append(Contestant(name, options.ours, options=tuple(shlex.split(words))))
    if options.handlers == "both":
        more += [
            dataclasses.replace(one, name=f"{one.name}{tables.BEHIND_DECORATOR}", decorated=True)
            for one in bare + more
            if not one.native
        ]
    return [*bare, *more]


def takes_part(contestant: Contestant, name: str) -> bool:
    """Growth is measured of ours: the others would need minutes, and gigabytes."""
    if name.startswith("G"):
        return contestant.name in {"ours", "before"}
    if name in RECONCILING and not contestant.native and contestant.name not in {"ours", "before"}:
        return False
    if contestant.decorated and name not in DECORATED:
        return False
    return not (contestant.native and name in NOT_FOR_NATIVE)


class Clusters:
    """The cluster of the present workload."""

    def __init__(self, start: clusters.Starter) -> None:
        self._start = start
        self._kind = ""
        self._cluster: clusters.Cluster | None = None

    def of(self, workload: str) -> clusters.Cluster:
        """A new cluster for each workload; growth workloads reuse theirs."""
        kind = "growth" if workload in {"G1", "G10", "G100"} else workload
        if self._cluster is None or kind != self._kind:
            self.stop()
            self._kind, self._cluster = kind, clusters.prepared(self._start)
        return self._cluster

    def stop(self) -> None:
        """Also after a failure: the next one is fresh."""
        if self._cluster is not None:
            cluster, self._cluster = self._cluster, None
            cluster.stop()


def measure(name: str, kept: Clusters, everybody: list[Contestant], rounds: int) -> dict[str, list[Figures]]:
    """One workload: in each round, the contestants take turns on the same cluster."""
    results: dict[str, list[Figures]] = {}
    for number in range(rounds):
        for contestant in everybody:
            if not takes_part(contestant, name):
                continue
            try:
                figures = WORKLOADS[name](kept.of(name), contestant)
            except RuntimeError as error:
                print(f"{name}, {contestant.name}, round {number + 1}: failed: {error}", file=sys.stderr)
                kept.stop()
                continue
            results.setdefault(contestant.name, []).append(figures)
            shown = ", ".join(f"{key} {tables.number(value)}" for key, value in figures.items())
            print(f"{name}, {contestant.name}, round {number + 1}: {shown}", file=sys.stderr, flush=True)
    return results


def main() -> int:
    """Run all, and print."""
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that all that was started is stopped
    everybody = contestants(options)
    start = clusters.starter(options.ours, real=options.controlplane)
    results = {}
    if options.json and options.json.exists():
        results = json.loads(options.json.read_text())
    usual = [name for name in USUAL if not options.controlplane or not name.startswith("G")]
    chosen = options.workloads.split(",") if options.workloads else usual
    kept = Clusters(start)
    try:
        for name in chosen:
            before = time.monotonic()
            results[name] = measure(name, kept, everybody, options.rounds)
            print(f"{name}: {time.monotonic() - before:.0f} s", file=sys.stderr, flush=True)
            if options.json:
                options.json.write_text(json.dumps(results, indent=1))
    finally:
        kept.stop()
    names = [contestant.name for contestant in everybody]
    others = names[: names.index("ours")]
    parts = [
        tables.against_targets(results, "ours", others),
        tables.decorated(results, names),
        tables.pythons(results, names),
        tables.requests(results, [*others, "ours"]),
        tables.in_full(results),
    ]
    text = "\n".join(part for part in parts if part)
    if options.markdown:
        options.markdown.write_text(text)
    print(text)
    missing = [name for name in chosen if "ours" not in results[name]]
    if missing:
        print(f"Not measured: {', '.join(missing)}.", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
