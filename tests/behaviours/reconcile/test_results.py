"""Reconcilers: results, statuses and conditions. Sections 1.6, 1.9; scenarios 1.14.18, 1.14.26."""

import contextlib
import logging
import threading

import kopf
import pytest
from kopf.testing import ApiError

HANDLERS_RAISE = True


def test_1_6_patches_and_results_are_written_once(run, make, cluster):
    running = run()
    make(spec={"size": 1, "phase": "done", "result": {"x": 1}})
    status = cluster.wait_for("widgets", "one", lambda body: "sync" in body.get("status", {}))["status"]
    assert status == {"phase": "done", "sync": {"x": 1}} or status["phase"] == "done"
    running.settle()
    version = cluster.get("widgets", "one")["metadata"]["resourceVersion"]
    cluster.patch("widgets", "one", {"metadata": {"labels": {"a": "b"}}})
    running.until("sync", 2)
    running.settle()
    body = cluster.get("widgets", "one")
    assert body["status"] == status
    # Only the change of the test: nothing that is there already is written.
    assert int(body["metadata"]["resourceVersion"]) > int(version)
    assert len(running.of("sync")) == 2


CONDITIONS = """
import kopf

@kopf.on.reconcile("widgets", condition="Reconciled", observe=True)
def sync(spec, memo, conditions, **_):
    memo.calls.append(("sync", spec["size"], "Ready" in conditions))
    conditions.set("Ready", spec["size"] > 1, reason="Size", message=f"size {spec['size']}")
    if spec.get("waits"):
        return kopf.Requeue(3600, "not yet")
    if spec.get("fails"):
        raise RuntimeError("boo")
"""


def conditions_of(body):
    return {item["type"]: item for item in body.get("status", {}).get("conditions", [])}


def test_1_9_conditions_are_set_and_keep_their_times(run, make, cluster):
    running = run(source=CONDITIONS)
    make()
    body = cluster.wait_for("widgets", "one", lambda body: len(conditions_of(body)) == 2)
    first = conditions_of(body)
    assert (first["Ready"]["status"], first["Ready"]["reason"]) == ("False", "Size")
    assert (first["Reconciled"]["status"], first["Reconciled"]["reason"]) == ("True", "Succeeded")
    assert first["Ready"]["observedGeneration"] == body["metadata"]["generation"]
    foreign = {"type": "Foreign", "status": "True", "reason": "R", "message": "", "extra": 1}
    listed = [*body["status"]["conditions"], foreign]
    cluster.patch("widgets", "one", {"status": {"conditions": listed}}, subresource="status")
    cluster.patch("widgets", "one", {"spec": {"size": 2}})
    body = cluster.wait_for("widgets", "one", lambda body: conditions_of(body)["Ready"]["status"] == "True")
    later = conditions_of(body)
    assert later["Foreign"] == foreign
    assert later["Reconciled"]["lastTransitionTime"] == first["Reconciled"]["lastTransitionTime"]
    assert [item["type"] for item in body["status"]["conditions"]][-1] == "Foreign"
    running.settle()
    assert running.of("sync") == [(1, False), (2, True)]


def test_1_9_the_condition_of_the_call_shows_waiting_and_failures(run, make, cluster):
    run(source=CONDITIONS)
    make(spec={"size": 1, "waits": True})
    make("two", spec={"size": 1, "fails": True})
    body = cluster.wait_for("widgets", "one", lambda body: "Reconciled" in conditions_of(body))
    waiting = conditions_of(body)["Reconciled"]
    assert (waiting["status"], waiting["reason"], waiting["message"]) == ("False", "Waiting", "not yet")
    body = cluster.wait_for("widgets", "two", lambda body: "Reconciled" in conditions_of(body))
    failed = conditions_of(body)["Reconciled"]
    assert (failed["status"], failed["reason"], failed["message"]) == ("False", "RuntimeError", "boo")


@pytest.mark.kopf_embedded_only
def test_1_14_18_the_same_condition_again_sends_no_request(run, make, cluster):
    running = run(source=CONDITIONS)
    make()
    running.settle()
    cluster.clear_requests()
    cluster.patch("widgets", "one", {"metadata": {"labels": {"a": "b"}}})
    running.settle()
    assert len(running.of("sync")) == 2
    # The log has no requests of the test itself.
    assert [request for request in cluster.requests if request.method != "GET"] == []


ALTERNATING = """
import kopf

@kopf.on.reconcile("widgets", backoff=0)
def sync(spec, conditions, memo, **_):
    conditions.set("Odd", spec["size"] % 2 == 1, reason="Size")
    memo.calls.append(("sync", spec["size"]))
"""
WRITES = 100


def test_1_14_18_conditions_of_two_writers_are_both_kept(run, make, cluster):
    """The operator and another client change their own conditions at the same time."""
    running = run(source=ALTERNATING)
    make()
    running.until("sync")

    def write():
        for number in range(WRITES):
            written = False
            while not written:
                body = cluster.get("widgets", "one")
                listed = [
                    it for it in body.get("status", {}).get("conditions", []) if it["type"] != "Foreign"
                ]
                foreign = {"type": "Foreign", "status": "True", "reason": f"R{number}", "message": ""}
                version = {"resourceVersion": body["metadata"]["resourceVersion"]}
                changed = {"metadata": version, "status": {"conditions": [*listed, foreign]}}
                with contextlib.suppress(ApiError):  # a conflict
                    cluster.patch("widgets", "one", changed, subresource="status")
                    written = True

    thread = threading.Thread(target=write)
    thread.start()
    for size in range(2, WRITES + 2):
        cluster.patch("widgets", "one", {"spec": {"size": size}})
    thread.join(120)
    assert not thread.is_alive()
    is_odd = str((WRITES + 1) % 2 == 1)
    body = cluster.wait_for(
        "widgets", "one", lambda it: conditions_of(it).get("Odd", {}).get("status") == is_odd, timeout=30
    )
    assert conditions_of(body)["Foreign"]["reason"] == f"R{WRITES - 1}"
    running.settle()


HANGING = """
import asyncio, kopf

@kopf.on.reconcile("widgets", id="coroutine", reconcile_timeout=1, retries=1)
async def hanging(memo, patch, **_):
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        memo.calls.append(("coroutine", "cancelled"))
        raise

@kopf.on.reconcile("widgets", id="thread", reconcile_timeout=1, retries=1)
def hanging_thread(memo, patch, **_):
    memo.calls.append(("thread", "started"))
    memo.gate.wait(30)
    patch.status["late"] = True
    memo.calls.append(("thread", "ended"))
"""


@pytest.fixture
def logged():
    """Waits until so many lines with the text are logged, and returns them."""
    lines, arrived = [], threading.Condition()

    class Handler(logging.Handler):
        def emit(self, record):
            with arrived:
                lines.append(record.getMessage())
                arrived.notify_all()

    def wait(text, count):
        def found():
            return [line for line in lines if text in line]

        with arrived:
            assert arrived.wait_for(lambda: len(found()) >= count, timeout=60), lines
            return found()

    handler = Handler()
    logging.getLogger().addHandler(handler)
    yield wait
    logging.getLogger().removeHandler(handler)


def test_1_14_26_calls_that_hang_fail_after_their_timeout(run, make, cluster, logged):
    gate = threading.Event()
    running = run(share={"gate": gate}, source=HANGING)
    make()
    # The thread still runs when its call has failed.
    text = "The call has exceeded its timeout of 1 seconds."
    by_thread, by_coroutine = sorted(logged(text, 2), key=lambda line: "'coroutine'" in line)
    assert "'thread' failed temporarily" in by_thread and by_thread.endswith("after its end.")
    assert "'coroutine' failed temporarily" in by_coroutine and by_coroutine.endswith(text)
    assert running.of("coroutine") == ["cancelled"] and running.of("thread") == ["started"]
    gate.set()
    running.until("thread", 2)
    running.settle()
    assert "late" not in cluster.get("widgets", "one").get("status", {})
    assert len(logged(text, 2)) == 2


SUPPRESSING = """
import asyncio, kopf

@kopf.on.reconcile("widgets", reconcile_timeout=1, retries=1)
async def sync(memo, patch, **_):
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        memo.calls.append(("sync", "cancelled"))
    patch.status["late"] = True
"""


def test_1_6_a_call_that_suppresses_its_timeout_fails(run, make, cluster, caplog):
    running = run(source=SUPPRESSING)
    make()
    running.until("sync")
    running.settle()
    assert "The call has exceeded its timeout of 1 seconds" in caplog.text
    assert "late" not in cluster.get("widgets", "one").get("status", {})
    assert running.of("sync") == ["cancelled"]


UNWRITABLE = """
import kopf

@kopf.on.reconcile("widgets")
def sync(name, patch, memo, **_):
    memo.calls.append(("sync", name))
    patch.status["x"] = 1
    raise memo.errors[name]
"""


@pytest.mark.kopf_embedded_only
def test_1_6_a_rejected_patch_does_not_replace_the_error_of_the_call(run, make, cluster):
    cluster.freeze()
    cluster.inject("code", 422, verb="patch", resource="widgets")
    errors = {"temporary": kopf.TemporaryError("quota", delay=600), "permanent": kopf.PermanentError("never")}
    running = run(source=UNWRITABLE, share={"errors": errors})
    for name in errors:
        make(name)
    running.settle()
    cluster.advance(300)
    assert sorted(running.of("sync")) == ["permanent", "temporary"]
    cluster.advance(400)
    assert sorted(running.of("sync")) == ["permanent", "temporary", "temporary"]


WITH_CONDITION = """
import asyncio
import kopf

@kopf.on.reconcile("widgets", reconcile_timeout=0.5, backoff=0.1, condition="Reconciled")
async def sync(spec, memo, **_):
    memo.calls.append(("sync", spec["size"]))
    if spec["size"] > 1:
        await asyncio.sleep(600)
"""


def test_1_9_the_condition_is_false_after_a_call_that_exceeds_its_timeout(run, make, cluster):
    run(source=WITH_CONDITION)
    make(spec={"size": 1})
    succeeded = cluster.wait_for("widgets", "one", lambda body: "Reconciled" in conditions_of(body))
    assert conditions_of(succeeded)["Reconciled"]["status"] == "True"
    cluster.patch("widgets", "one", {"spec": {"size": 2}})
    cluster.wait_for("widgets", "one", lambda body: conditions_of(body)["Reconciled"]["status"] == "False")


SHOPS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shops.behaviours.example.com}
spec:
  group: behaviours.example.com
  scope: Namespaced
  names: {plural: shops, singular: shop, kind: Shop, listKind: ShopList}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      schema: {openAPIV3Schema: {type: object, properties: {status: {type: object}}}}
"""

PRUNED = """
import kopf

@kopf.on.reconcile("shops", condition="Reconciled")
def sync(name, memo, **_):
    memo.calls.append(("sync", name))
"""


def test_1_9_a_schema_without_conditions_is_logged_once_and_nothing_fails(run, cluster, caplog):
    cluster.apply(SHOPS)
    running = run(source=PRUNED)
    for name in ("one", "two"):
        shop = {"apiVersion": "behaviours.example.com/v1", "kind": "Shop", "metadata": {"name": name}}
        cluster.create(shop)
    running.until("sync", 2)
    running.settle()
    lines = [it.getMessage() for it in caplog.records if "status.conditions" in it.getMessage()]
    assert len(lines) == 1
    assert "The API server does not store status.conditions of shops.behaviours.example.com: " in lines[0]
    assert len(running.of("sync")) == 2
