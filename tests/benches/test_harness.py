"""The benchmarks run, and their tables contain the measured figures. Speed is not tested."""

import dataclasses
import os
import pathlib
import sys

import pytest

from benches.harness import clusters, processes, tables, workloads
from benches.harness.contestants import Contestant
from benches.harness.load import BENCHES as BENCHED

BENCHES = pathlib.Path(__file__).resolve().parents[2] / "benches"


@pytest.fixture(scope="module")
def server():
    cluster = clusters.prepared(clusters.starter(sys.executable, real=False))
    yield cluster
    cluster.stop()


@pytest.fixture
def cluster(server):
    yield server
    server.client.clear()


@pytest.fixture
def ours(monkeypatch):
    # A quarter of a second without CPU time: it is only about whether it runs.
    monkeypatch.setattr(processes, "quiesce", lambda pid: processes.cpu(pid))
    return Contestant("ours", sys.executable)


def test_options_of_a_contestant_are_those_of_the_command(ours):
    """A part of LEA-18."""
    elected = dataclasses.replace(ours, options=("--leader-elect", "--lease=bench"))
    command = [*ours.argv("burst")[:-1], *elected.options, ours.argv("burst")[-1]]
    assert elected.argv("burst") == command


def test_handled_objects_are_not_written(cluster, ours):
    figures = workloads.resync(3)(cluster, ours)
    assert figures["writes per object"] == 0
    assert figures["peak memory, MiB"] > 5


def test_creations_cost_two_writes(cluster, ours):
    figures = workloads.burst(3)(cluster, ours)
    assert figures["writes per object"] == pytest.approx(2)


def test_creations_with_events_cost_four_writes(cluster, ours):
    # The events may still be on their way when all objects are handled.
    figures = workloads.posting(3)(cluster, ours)
    assert figures["writes per object"] >= 2


@pytest.mark.parametrize(("field", "writes"), [(False, 1), (True, 2)])
def test_updates_cost_a_write_and_another_one_with_fields(cluster, ours, field, writes):
    figures = workloads.updates(2, 2, field=field)(cluster, ours)
    assert figures["writes per update"] == pytest.approx(writes)


def test_every_event_is_seen(cluster, ours):
    figures = workloads.firehose(3, 2)(cluster, ours)
    assert 0 < figures["calls per event"] <= 1


def test_the_waiting_time_is_the_handlers(cluster, ours):
    figures = workloads.latency(2)(cluster, ours)
    assert figures["start after the request, p50, ms"] <= figures["handled after the request, p50, ms"]


def test_the_round_trip_is_no_part_of_the_wait_beyond_it(cluster, ours):
    figures = workloads.latency(2)(cluster, ours)
    part = figures["start beyond the creation's round trip, p50, ms"]
    assert part < figures["start after the request, p50, ms"]


def test_growth_goes_on_with_what_is_there(cluster, ours):
    for count in (2, 3):
        figures = workloads.growth(count, 2)(cluster, ours)
        assert cluster.client.call("GET", f"{BENCHED}/obj-{count - 1:06}")[0] == 200
        assert cluster.client.call("GET", f"{BENCHED}/new-000001")[0] == 404
        assert figures["CPU per additional object, ms"] > 0


def test_failing_operators_report_the_reason(cluster, ours):
    with pytest.raises(RuntimeError, match=r"exited with \d:\n[\s\S]*There is no file"):
        workloads.burst(1, "missing")(cluster, ours)


def test_targets_are_judged_by_medians():
    results = {
        "W5": {
            "reference": [{"CPU per update, ms": 3.0}],
            "ours": [{"CPU per update, ms": value} for value in (0.3, 9.0, 0.2)],
        },
        "W1": {"ours": [{"import kopf: CPU, ms": 31.0}]},
    }
    lines = tables.against_targets(results, "ours", ["reference"]).splitlines()
    assert lines[2:4] == [
        "| W1 `import kopf`, CPU | - | **31.0 ms** | - | ≤ 30 ms | missed: 31.0 ms |",
        "| W5 update, CPU | 3.00 ms | **0.3 ms** | 0.1 (≤ 0.1) | - | met |",
    ]
    assert lines[5].startswith("Not measured: W1 `kopf --version`, CPU; ")
    assert "W5 update" not in lines[5]


def test_targets_are_missed_by_what_the_others_need_too():
    key = "CPU per update, ms"
    results = {
        "W5": {
            "reference": [{key: 2.0}],
            "kube-rs": [{key: 1.0}],
            "controller-runtime": [{key: 0.1}],
            "ours": [{key: 0.3}],
        }
    }
    everybody = ["reference", "kube-rs", "controller-runtime"]
    line = tables.against_targets(results, "ours", everybody).splitlines()[2]
    figures = "2.00 ms | 1.00 ms | 0.1 ms | **0.3 ms** | 0.15 (≤ 0.1) | 0.3 (≤ 0.7) | 3.00 | -"
    assert line == f"| W5 update, CPU | {figures} | missed: ÷ reference |"


def test_there_are_no_parts_of_what_is_below_zero():
    key = "start beyond the creation's round trip, p50, ms"
    for theirs, ours, verdict in [(-0.1, 0.2, "-"), (0.1, -0.2, "met"), (0.0, 0.2, "-")]:
        results = {"W6": {"reference": [{key: theirs}], "ours": [{key: ours}]}}
        line = tables.against_targets(results, "ours", ["reference"]).splitlines()[2]
        assert line.endswith(f"** | - | - | {verdict} |")


def test_targets_without_anything_to_compare_with_are_not_met():
    results = {"W5": {"ours": [{"CPU per update, ms": 0.3}]}}
    line = tables.against_targets(results, "ours", []).splitlines()[2]
    assert line == "| W5 update, CPU | **0.3 ms** | - | - |"


def test_bare_and_decorated_handlers_are_compared_for_each_contestant():
    key = "CPU per event, µs"
    results = {
        "W4": {
            "reference": [{key: 300.0}],
            "ours": [{key: 50.0}],
            "reference, decorated": [{key: 330.0}],
            "ours, decorated": [{key: 55.0}],
        },
        "W3": {"ours": [{"CPU per object, ms": 1.0}]},
    }
    lines = tables.decorated(
        results, ["reference", "kube-rs", "ours", "reference, decorated", "ours, decorated"]
    )
    assert lines.splitlines()[2:] == [
        "| W4 | 300.0 µs | 330.0 µs | 1.10 | 50.0 µs | 55.0 µs | 1.10 | ours: ≤ 1.15 |"
    ]


def test_no_table_of_decorated_handlers_without_their_figures():
    assert tables.decorated({}, ["reference", "ours"]) == ""


def test_the_newest_python_is_compared_with_the_oldest():
    key = "CPU per call, µs"
    results = {"W7A": {"ours": [{key: 40.0}], "ours, newest Python": [{key: 30.0}]}}
    lines = tables.pythons(results, ["ours", "ours, newest Python"]).splitlines()
    assert lines[2:] == ["| W7A | 40.0 µs | 30.0 µs | 0.75 |"]
    assert tables.pythons(results, ["ours"]) == ""


def test_handlers_behind_the_decorator_do_the_same_work(cluster, ours):
    figures = workloads.burst(3)(cluster, dataclasses.replace(ours, decorated=True))
    assert figures["writes per object"] == pytest.approx(2)


def test_the_peak_of_private_memory_is_at_least_what_is_used_now(cluster, ours):
    figures = workloads.resync(3)(cluster, ours)
    assert figures["peak memory, MiB"] >= figures["idle memory, MiB"] > 5


def test_the_work_that_was_done_is_shown_for_everybody():
    results = {"W3": {"ours": [{"writes per object": 2.0}], "reference": [{"writes per object": 2.01}]}}
    lines = tables.requests(results, ["reference", "native", "ours"]).splitlines()
    assert lines[2:] == ["| W3 | 2.01 | - | 2.00 |"]


def test_costs_of_growth_are_without_those_of_the_start():
    results = {
        "G1": {"ours": [{"CPU, s": 1.0}]},
        "G10": {"ours": [{"CPU, s": 1.9}]},
        "G100": {"ours": [{"CPU, s": 11.8}]},
    }
    table = tables.against_targets(results, "ours", [])
    # From 100 µs for each of 9,000 to 110 µs for each of 90,000.
    assert "| growth: W2 per object, 1,000 → 100,000 | **1.10** | ≤ 1.1 | met |" in table


@pytest.mark.skipif("KUBEBUILDER_ASSETS" not in os.environ, reason="needs KUBEBUILDER_ASSETS")
def test_writes_are_counted_on_a_control_plane(ours):
    cluster = clusters.prepared(clusters.starter(sys.executable, real=True))
    try:
        assert len(cluster.pids) == 2 and cluster.cpu() > 0
        assert workloads.burst(3)(cluster, ours)["writes per object"] == pytest.approx(2)
    finally:
        cluster.stop()
    assert not any(pathlib.Path(f"/proc/{pid}").exists() for pid in cluster.pids)
