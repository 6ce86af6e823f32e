"""Runs the same operators with Kopf 1.45 and with a candidate, and compares their effects on a real cluster.

    python -m tests.differential.run --reference PYTHON --candidate PYTHON [--part N] [--only GLOB ...]

The cluster is that of `--kubeconfig`, or a control plane from KUBEBUILDER_ASSETS, started for the run. The
exit code is 1 if there is a difference, or if CI=true and there is no control plane.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from tests.differential.harness import compare, crds, parts, scenario
from tests.differential.harness.cluster import Cluster, Endpoint
from tests.differential.harness.runner import Runner
from tests.support import controlplane

SCENARIOS = pathlib.Path(__file__).resolve().parent / "scenarios"
# Prints the versions of the distributions that contain the package `kopf`.
PROBE = """
import importlib.metadata, json, kopf
found = {name: None for name in ("kopf", "kopf-rs")}
for name in found:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--reference", metavar="PYTHON", help="an interpreter with Kopf 1.45, or a file of --save-reference")
    add("--candidate", metavar="PYTHON", help="the other interpreter (default: that with Kopf 1.45 again)")
    add("--kubeconfig", type=pathlib.Path, metavar="FILE", help="an existing cluster without other users")
    add("--only", metavar="GLOB", action="append", default=[], help="names of scenarios, repeatable")
    add("--part", metavar="N", help=f"one of {parts.PARTS} parts: a number, or 'today'")
    add("--jobs", metavar="N", type=int, default=2, help="the number of operators at the same time")
    add("--json", type=pathlib.Path, metavar="FILE", help="write the verdicts")
    add("--save-reference", type=pathlib.Path, metavar="FILE", help="write the recordings of Kopf 1.45")
    add("--strict-logs", action="store_true", help="differences in logs are errors")
    add("--strict-requests", action="store_true", help="differences in API requests are errors")
    add("--quiet-warnings", action="store_true", help="print only the names of warnings")
    add("--keep", type=pathlib.Path, metavar="FOLDER", help="keep the traces and logs of all runs")
    add("--list", action="store_true", help="list the scenarios and exit")
    options = parser.parse_args()
    if not options.list and not options.reference:
        parser.error("--reference is required")
    return options


def interpreter(name: str, *, is_reference: bool = False) -> str:
    """The path of an interpreter that can import `kopf`; prints its version."""
    path = shutil.which(name)
    if path is None:
        raise SystemExit(f"{name} is not an interpreter.")
    path = os.path.abspath(path)
    probe = subprocess.run(
        [path, "-c", PROBE], capture_output=True, text=True, cwd=tempfile.gettempdir(), timeout=60
    )
    if probe.returncode:
        raise SystemExit(f"{name} cannot import kopf: {probe.stderr.strip().splitlines()[-1]}")
    versions = json.loads(probe.stdout)
    if is_reference and versions["kopf-rs"]:
        raise SystemExit(f"{name} has kopf-rs instead of Kopf 1.45.")
    if not is_reference:
        found = (versions["kopf-rs"] and f"kopf-rs {versions['kopf-rs']}") or f"Kopf {versions['kopf']}"
        print(f"Compared with Kopf 1.45: {found} of {path}")
    return path


@contextlib.contextmanager
def cluster_of(options: argparse.Namespace) -> Iterator[Cluster]:
    """The cluster of the kubeconfig, or a control plane that is started here."""
    if options.kubeconfig:
        yield Cluster(Endpoint(options.kubeconfig))
    else:
        with controlplane.running() as plane:
            yield Cluster(Endpoint(plane.kubeconfig))


@contextlib.contextmanager
def folder_of(options: argparse.Namespace) -> Iterator[pathlib.Path]:
    """The folder of the runs, which remains with `--keep`."""
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        yield options.keep
    else:
        with tempfile.TemporaryDirectory(prefix="differential.", ignore_cleanup_errors=True) as folder:
            yield pathlib.Path(folder)


def report(verdict: compare.Verdict, *, quiet_warnings: bool) -> None:
    word = "ok  " if verdict.passed else "FAIL"
    warnings = f"  (warnings: {', '.join(verdict.warnings)})" if verdict.warnings else ""
    print(f"{word} {verdict.name:<34} {verdict.seconds[0]:>5} s {verdict.seconds[1]:>5} s{warnings}")
    found = [("difference", verdict.errors)]
    if not quiet_warnings:
        found.append(("warning", verdict.warnings))
    for title, sections in found:
        for section, lines in sections.items():
            print(f"  {title}: {section}", *(f"    {line}" for line in lines), sep="\n")
    sys.stdout.flush()


def chosen(options: argparse.Namespace) -> list[scenario.Scenario]:
    """The scenarios to run."""
    scenarios = scenario.load(SCENARIOS, options.only)
    if options.part:
        part = parts.today() if options.part == "today" else int(options.part) % parts.PARTS
        names = parts.choose([one.name for one in scenarios], part)
        print(f"Differential suite, part {part + 1} of {parts.PARTS}: {', '.join(names)}", flush=True)
        scenarios = [one for one in scenarios if one.name in names]
    if not scenarios:
        raise SystemExit("No scenario has such a name: --list prints all names.")
    return scenarios


def run(options: argparse.Namespace, scenarios: list[scenario.Scenario]) -> list[compare.Verdict]:
    """Run the scenarios, and write the requested files."""
    is_saved = options.reference.endswith(".json")
    reference = (
        json.loads(pathlib.Path(options.reference).read_text())
        if is_saved
        else interpreter(options.reference, is_reference=True)
    )
    if is_saved and not options.candidate:
        raise SystemExit("Saved recordings can only be compared with a --candidate.")
    candidate = interpreter(options.candidate or options.reference)
    strict = [name for name in compare.LENIENT if getattr(options, f"strict_{name}")]
    with cluster_of(options) as cluster, folder_of(options) as folder:
        crds.install(cluster, crds.SHARED_GROUP)
        runner = Runner(cluster, reference, candidate, folder, options.jobs, bool(options.keep), strict)
        verdicts = runner.run(scenarios, functools.partial(report, quiet_warnings=options.quiet_warnings))
    if options.save_reference:
        options.save_reference.write_text(json.dumps(runner.recordings))
    if options.json:
        options.json.write_text(json.dumps([verdict.as_dict() for verdict in verdicts], indent=1))
    return verdicts


def main() -> int:
    options = arguments()
    if options.list:
        print("\n".join(f"{one.name}: {one.summary}" for one in scenario.load(SCENARIOS, options.only)))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that operators and the control plane are ended
    if not options.kubeconfig:
        try:
            controlplane.find_assets()
        except controlplane.ClusterUnavailableError as error:
            is_required = os.environ.get("CI") == "true"
            word = "FAILED, because there is no control plane" if is_required else "SKIPPED"
            print(f"Differential suite: {word}. {error}")
            return 1 if is_required else 0
    begun = time.monotonic()
    scenarios = chosen(options)
    verdicts = run(options, scenarios)
    passed = sum(verdict.passed for verdict in verdicts)
    print(f"{time.monotonic() - begun:.0f} s")
    print(f"{passed} passed, {len(verdicts) - passed} failed")
    return 0 if passed == len(scenarios) else 1


if __name__ == "__main__":
    sys.exit(main())
