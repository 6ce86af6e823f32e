"""The differential suite: its scenarios exist, it detects differences, and it is not skipped in CI."""

import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from tests.differential.harness import parts, scenario
from tests.differential.harness.compare import compare

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUITE = ROOT / "tests" / "differential"


def test_every_scenario_is_complete() -> None:
    scenarios = scenario.load(SUITE / "scenarios")
    folders = [path for path in (SUITE / "scenarios").iterdir() if list(path.glob("*.py"))]
    assert len(folders) >= 34
    assert {one.folder for one in scenarios} == set(folders)
    assert all((one.folder / "handlers.py").exists() and one.summary for one in scenarios)


def test_each_scenario_comes_around_and_the_main_ones_are_always_there() -> None:
    names = [one.name for one in scenario.load(SUITE / "scenarios")]
    assert set(parts.ALWAYS) <= set(names)
    chosen = [parts.choose(names, part) for part in range(parts.PARTS)]
    assert {name for part in chosen for name in part} == set(names)
    assert all(set(parts.ALWAYS) <= set(part) for part in chosen)
    assert all(len(part) == len(set(part)) <= len(names) / 4 for part in chosen)
    assert parts.today() in range(parts.PARTS)


@pytest.mark.parametrize(
    ("variables", "code", "word"), [({}, 0, "SKIPPED"), ({"CI": "true"}, 1, "FAILED")], ids=["local", "ci"]
)
def test_without_a_control_plane_it_is_skipped_but_not_in_ci(variables, code: int, word: str) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in ("CI", "KUBEBUILDER_ASSETS")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.differential.run", "--reference", sys.executable],
        cwd=ROOT,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.startswith(f"Differential suite: {word}") and "KUBEBUILDER_ASSETS" in done.stdout


def call(fn: str = "created", reason: str = "create", **changes: Any) -> dict[str, Any]:
    body = {"metadata": {"name": "w", "uid": "1"}, "spec": {"n": 1}}
    resource = {"plural": "widgets", "group": "g"}
    return {
        **{"fn": fn, "reason": reason, "name": "w", "namespace": "d1-ns", "body": body, "resource": resource},
        **{"kwargs": ["body", "reason"], "views": {"spec": True}},
        **changes,
    }


def write(path: str = "/apis/g/v1/namespaces/d1-ns/widgets/w", body: Any = None) -> dict[str, Any]:
    body = {"status": {"created": 1}} if body is None else body
    return {
        "method": "PATCH",
        "path": path,
        "type": "application/merge-patch+json",
        "body": body,
        "status": 200,
    }


def recording(**changes: Any) -> dict[str, Any]:
    """A recording of a run in the namespace d1-ns."""
    names = {"workdir": "/runs/1", "folder": "/suite/s", "proxy": "http://127.0.0.1:20001"}
    widget = {"metadata": {"name": "w", "uid": "1", "resourceVersion": "7"}, "status": {"created": 1}}
    return {
        "names": {**names, "ns": "d1-ns", "group": "d1.example.dev", "token": "d1"},
        "failure": None,
        "traces": [call(), call("second")],
        "steps": [{"label": "created", "objects": {"widgets/d1-ns/w": widget}, "events": []}],
        "observations": [["probed", [200, "ok"]]],
        "gaps": {"created": [2.0]},
        "exits": [["op", 0]],
        "logs": {"op": '{"message": "created", "severity": "info"}'},
        "requests": [write()],
        **changes,
    }


CHANGED = {
    "exit code": ("process", recording(exits=[["op", "stuck"]])),
    "response": ("process", recording(observations=[["probed", [500, "ok"]]])),
    "order of calls": ("traces", recording(traces=[call("second"), call()])),
    "missing call": ("traces", recording(traces=[call()])),
    "argument": ("traces", recording(traces=[call(reason="update"), call("second")])),
    "body": ("traces", recording(traces=[call(body={"spec": {"n": 2}}), call("second")])),
    "keyword": ("signatures", recording(traces=[call(kwargs=["reason"], body=None), call("second")])),
    "object": ("objects", recording(steps=[{"label": "created", "objects": {}, "events": []}])),
    "event": (
        "events",
        recording(
            steps=[{**recording()["steps"][0], "events": [{"reason": "Logging", "type": "Normal"}]}],
        ),
    ),
    "more writes": ("number of writes", recording(requests=[write(), write()])),
    "later call": ("timings", recording(gaps={"created": [3.0]})),
}


def judged(candidate: dict[str, Any]) -> dict[str, list[str]]:
    """The differences of this candidate from the usual recording."""
    [one] = scenario.load(SUITE / "scenarios", ["lifecycle"])
    return compare(one, recording(), candidate).errors


def test_names_times_and_ids_make_no_difference() -> None:
    other = {"name": "w", "uid": "2", "resourceVersion": "9", "creationTimestamp": "2026-01-01T00:00:00Z"}
    steps = [{"label": "created", "events": [], "objects": {"widgets/d2-ns/w": {"metadata": other}}}]
    steps[0]["objects"]["widgets/d2-ns/w"]["status"] = {"created": 1}
    candidate = recording(
        names={**recording()["names"], "ns": "d2-ns", "token": "d2"},
        traces=[call(namespace="d2-ns"), call("second", namespace="d2-ns")],
        steps=steps,
        gaps={"created": [2.4]},
        requests=[write("/apis/g/v1/namespaces/d2-ns/widgets/w")],
    )
    assert judged(candidate) == {}


@pytest.mark.parametrize(("section", "candidate"), CHANGED.values(), ids=list(CHANGED))
def test_each_kind_of_difference_is_found(section: str, candidate: dict[str, Any]) -> None:
    assert section in judged(candidate)


def test_a_run_that_failed_does_not_pass() -> None:
    assert judged(recording(failure="not in 20 s: 1 calls of created"))
    [one] = scenario.load(SUITE / "scenarios", ["lifecycle"])
    failed = recording(failure="not in 20 s")
    assert "Kopf 1.45 failed" in compare(one, failed, failed).errors
