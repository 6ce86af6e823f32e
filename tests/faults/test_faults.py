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

import pytest
import rows_containment  # noqa: F401
import rows_network  # noqa: F401
import rows_refusals  # noqa: F401
import rows_ways  # noqa: F401
from rows import ROWS
from theatre import DEFINITION, Result, Theatre

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
@pytest.mark.parametrize("title", ROWS)
def test_fault(title, kopf_cluster, table, request):
    python = request.config.getoption("--kopf-python")
    fault, scenery = ROWS[title]
    kopf_cluster.apply(DEFINITION)
    theatre = Theatre(kopf_cluster, title, scenery, python)
    for number in range(scenery.crowd):
        theatre.create(f"crowd-{number}")
    with theatre.running():
        for name in "abc":
            theatre.create(name)
        if not scenery.crowd:
            theatre.wait(theatre.is_converged)
            assert theatre.is_converged(), (theatre.calls, theatre.troupe.log)
        start = time.monotonic()
        fault(theatre)
        result = theatre.result(start)
    table.append(result)
    if python != sys.executable:
        return
    assert result.survived, "\n".join(result.why)
    assert result.doubles <= scenery.doubles, result.why
