"""Whatever clusters do, nothing is lost: one run per fault, each with the same check at its end.

The table is printed, and written to the file that `KOPF_FAULTS_TABLE` names. With `--kopf-python`, another
kopf is tried: nothing is claimed then, but what has come of it is in the table.
"""

import dataclasses
import json
import os
import pathlib
import sys
import time
from collections.abc import Iterator

import containment_cases  # noqa: F401
import network_cases  # noqa: F401
import network_path_cases  # noqa: F401
import pytest
import rejection_cases  # noqa: F401
from cases import CASES
from harness import DEFINITION, Harness, Result

COLUMNS = ("survived", "seconds", "lost", "doubles", "exits", "stuck", "leaked")


@pytest.fixture(scope="module")
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


@pytest.mark.timeout(300)
@pytest.mark.parametrize("title", CASES)
def test_fault(title, kopf_cluster, table, request):
    python = request.config.getoption("--kopf-python")
    fault, scenery = CASES[title]
    kopf_cluster.apply(DEFINITION)
    harness = Harness(kopf_cluster, title, scenery, python)
    for number in range(scenery.crowd):
        harness.create(f"crowd-{number}")
    with harness.running():
        for name in "abc":
            harness.create(name)
        if not scenery.crowd:
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
