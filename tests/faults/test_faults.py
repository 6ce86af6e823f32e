"""No change is lost on faults of the cluster: one run per fault, with the same check at its end.

The table is printed, and written to the file that `KOPF_FAULTS_TABLE` names. With `--kopf-python`, another
Kopf is tested: then the table has the results, and nothing is asserted.
"""

import dataclasses
import json
import os
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults import (
    containment_cases,  # noqa: F401
    network_cases,  # noqa: F401
    network_path_cases,  # noqa: F401
    rejection_cases,  # noqa: F401
)
from tests.faults.cases import CASES
from tests.faults.fault_harness import CRD, Harness, Result

COLUMNS = ("survived", "seconds", "lost", "doubles", "exits", "stuck", "leaked")


@pytest.fixture(scope="session")
def table() -> Iterator[list[Result]]:
    results: list[Result] = []
    yield results
    print("\n" + as_table(results))
    if path := os.environ.get("KOPF_FAULTS_TABLE"):
        rows = [{**dataclasses.asdict(it), "verdict": it.verdict} for it in results]
        pathlib.Path(path).write_text(json.dumps(rows, indent=1))


def as_table(results: list[Result]) -> str:
    lines = ["| fault | " + " | ".join(COLUMNS) + " |", "|---|" + "---|" * len(COLUMNS)]
    for it in results:
        cells = ["yes" if it.survived else "NO", f"{it.seconds:.1f}", it.lost, it.doubles]
        cells += [it.exits, it.stuck, it.leaked]
        lines.append(f"| {it.fault} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def with_limit(title: str) -> Any:
    """The case with a limit of time that it reaches only if it hangs."""
    return pytest.param(title, marks=pytest.mark.timeout(200 + 2 * CASES[title][1].converge))


@pytest.mark.parametrize("title", [with_limit(title) for title in CASES])
def test_fault(title, kopf_cluster, table, request):
    python = request.config.getoption("--kopf-python")
    fault, scenery = CASES[title]
    kopf_cluster.apply(CRD)
    harness = Harness(kopf_cluster, title, scenery, python)
    for number in range(scenery.bulk):
        harness.create(f"bulk-{number}")
    with harness.running():
        for name in "abc":
            harness.create(name)
        if not scenery.bulk:
            harness.wait(harness.is_converged)
            assert harness.is_converged(), (harness.calls, harness.operator_process.log)
        start = time.monotonic()
        fault(harness)
        result = harness.result(start)
    table.append(result)
    if python != sys.executable:
        return
    assert result.survived, "\n".join(result.why)
    assert result.doubles <= scenery.doubles, result.why
