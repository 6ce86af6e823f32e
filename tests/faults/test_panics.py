"""Panics of the engine's tasks: nothing is lost, other objects are handled, and health and log are true.

The tests need the extension with the feature `testing`, as of `make test`, and are skipped without it.
"""

import json
import re
import time
import urllib.request

import kopf._kopf
import pytest

from tests.faults.cases import changes
from tests.faults.fault_harness import CRD, GROUP, Harness, Scenery

pytestmark = pytest.mark.skipif(
    not hasattr(kopf._kopf, "inject_panics"), reason="the extension is built without the feature `testing`"
)

WATCH = re.escape(f"parcels.v1.{GROUP}")
# The step that panics, the object, and the log line about it.
CONTAINED = [
    ("watch", None, rf"watch-stream for {WATCH} .*has panicked: an injected panic \(watch\)"),
    ("index", "a", r"\[default/a\] .*has panicked: an injected panic \(index\)"),
    ("handle", "a", r"\[default/a\] .*has panicked: an injected panic \(handle\)"),
    ("transform", "transformed", r"\[default/transformed\] .*has panicked: an injected panic \(transform\)"),
]


def get(harness: Harness, path: str) -> str:
    with urllib.request.urlopen(f"{harness.liveness}{path}", timeout=60) as answer:
        return answer.read().decode()


def start(harness: Harness) -> None:
    """Wait until all objects are handled."""
    for name in "abc":
        harness.create(name)
    harness.wait(harness.is_converged)
    assert harness.is_converged(), harness.operator_process.log


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("step", "name", "line"), CONTAINED, ids=[step for step, *_ in CONTAINED])
def test_panics_of_watches_and_workers_delay_only_their_objects(kopf_cluster, step, name, line):
    kopf_cluster.apply(CRD)
    harness = Harness(kopf_cluster, f"panic: {step}", Scenery(liveness=True))
    with harness.running():
        start(harness)
        harness.operator_process.panic(step, name)
        begin = time.monotonic()
        if name == "transformed":
            harness.create(name)
        changes(harness)
        harness.demands.append(
            ("daemons run", lambda: harness.operator_process.look()["daemons"].get("d") == 1)
        )
        result = harness.result(begin)
        assert re.search(line, harness.operator_process.log), harness.operator_process.log
        streams = json.loads(get(harness, "/streams"))
        assert get(harness, "/healthz")
        assert streams["expected"] >= 1 and streams["missing"] == [], streams
    assert result.survived, "\n".join(result.why)
    assert result.doubles == 0, result.why


@pytest.mark.timeout(200)
def test_other_objects_do_not_wait_for_one_whose_worker_panics_always(kopf_cluster):
    kopf_cluster.apply(CRD)
    harness = Harness(kopf_cluster, "panics of one object", Scenery(liveness=True))
    with harness.running():
        start(harness)
        harness.operator_process.panic("handle", "poison", times=1_000_000)
        harness.create("poison")
        changes(harness)
        others = [name for name in harness.expected if name != "poison"]

        def is_handled() -> bool:
            bodies = {body["metadata"]["name"]: body for body in harness.cluster.list("parcels")}
            return all(name in bodies and harness.is_handled(bodies[name]) for name in others)

        harness.wait(is_handled)
        assert is_handled(), harness.operator_process.log
        assert not harness.has_called("first", "poison") and harness.operator_process.running
        assert get(harness, "/healthz")
        harness.delete("poison")


@pytest.mark.timeout(200)
def test_a_panic_of_the_scheduler_of_daemons_ends_the_operator_and_nothing_is_lost(kopf_cluster):
    kopf_cluster.apply(CRD)
    harness = Harness(kopf_cluster, "panic: run", Scenery(doubles=1))
    with harness.running():
        start(harness)
        harness.create("ticking")

        def has_ticked() -> bool:
            return bool(harness.cluster.get("parcels", "ticking").get("status", {}).get("ticks"))

        # The first call of a timer comes from the worker of its object, later ones from the scheduler.
        harness.wait(has_ticked)
        harness.operator_process.panic("run", "ticking")
        begin = time.monotonic()
        changes(harness)
        assert harness.operator_process.exit_code() == 1
        assert (
            "The scheduler of daemons and timers has panicked: an injected panic (run)"
            in harness.operator_process.log
        )
        # As Kubernetes does.
        harness.operator_process.start()
        result = harness.result(begin)
    assert result.survived, "\n".join(result.why)
    assert result.doubles <= 1, result.why
