"""Runs the benchmarks and prints tables of medians: see README.md."""

from __future__ import annotations

import argparse
import json
import pathlib
import signal
import sys

from harness import clusters, tables
from harness.contestants import Contestant
from harness.workloads import USUAL, WORKLOADS, Figures

# There are no timers in threads in native programs, nor handlers that block.
NOT_NATIVE = {"W7S", "W8S"}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ours", required=True, metavar="PYTHON", help="with our package and nothing else")
    parser.add_argument("--reference", metavar="PYTHON", help="with Kopf 1.45 and nothing else")
    parser.add_argument("--before", metavar="PYTHON", help="with another version of ours, to compare with")
    parser.add_argument(
        "--native", action="append", default=[], metavar="NAME=PROGRAM", help="obeys the same variables"
    )
    parser.add_argument(
        "--controlplane", type=pathlib.Path, help="a folder with the scripts `up` and `down`; else in memory"
    )
    parser.add_argument("--workloads", default=",".join(USUAL), help=",".join(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path, help="all figures; those that are there are kept")
    parser.add_argument("--markdown", type=pathlib.Path, help="the tables")
    return parser.parse_args()


def contestants(options: argparse.Namespace) -> list[Contestant]:
    """In the order of the table, ours last."""
    found = [Contestant("reference", options.reference)] if options.reference else []
    for item in options.native:
        name, _, path = item.partition("=")
        found.append(Contestant(name, path, native=True))
    if options.before:
        found.append(Contestant("before", options.before))
    return [*found, Contestant("ours", options.ours)]


def measure(
    name: str, start: clusters.Starter, all: list[Contestant], rounds: int
) -> dict[str, list[Figures]]:
    """One workload: in each round, the contestants take turns on the same cluster."""
    results: dict[str, list[Figures]] = {}
    cluster = clusters.prepared(start)
    try:
        for number in range(rounds):
            for contestant in all:
                if contestant.native and name in NOT_NATIVE:
                    continue
                try:
                    figures = WORKLOADS[name](cluster, contestant)
                except RuntimeError as error:
                    print(f"{name}, {contestant.name}, round {number + 1}: failed: {error}", file=sys.stderr)
                    cluster.stop()
                    cluster = clusters.prepared(start)
                    continue
                results.setdefault(contestant.name, []).append(figures)
                shown = ", ".join(f"{key} {tables.number(value)}" for key, value in figures.items())
                print(f"{name}, {contestant.name}, round {number + 1}: {shown}", file=sys.stderr, flush=True)
    finally:
        cluster.stop()
    return results


def main() -> int:
    """Run all, and print."""
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that all that was started is stopped
    everybody = contestants(options)
    start = clusters.starter(options.controlplane, options.ours)
    results = {}
    if options.json and options.json.exists():
        results = json.loads(options.json.read_text())
    wanted = options.workloads.split(",")
    for name in wanted:
        results[name] = measure(name, start, everybody, options.rounds)
        if options.json:
            options.json.write_text(json.dumps(results, indent=1))
    others = [contestant.name for contestant in everybody if contestant.name != "ours"]
    text = tables.against_targets(results, "ours", others) + "\n" + tables.in_full(results)
    if options.markdown:
        options.markdown.write_text(text)
    print(text)
    missing = [name for name in wanted if "ours" not in results[name]]
    if missing:
        print(f"Not measured: {', '.join(missing)}.", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
