"""Reconcilers of deleted objects. Section 1.8: F1, F2, F7, F8; scenarios 1.14.14, 1.14.15, 1.14.16."""

import asyncio
import concurrent.futures
import contextlib
import threading

import kopf
import pytest
from kopf.testing import ApiError

ATTEMPTS = 200

DELETING = """
import kopf

@kopf.on.reconcile("widgets", deletion=True)
async def sync(spec, memo, deleting, **_):
    memo.calls.append(("sync", deleting))
    if deleting and memo.get("waits", 0) > 0:
        memo["waits"] = memo["waits"] - 1
        return kopf.Requeue(0.1)
"""


def finalizers_of(body):
    return body["metadata"].get("finalizers", [])


def test_1_14_14_the_finalizer_comes_first_and_goes_last(run, make, cluster, finalizer):
    running = run(source=DELETING, share={"waits": 2})
    make()
    running.until("sync")
    assert finalizers_of(cluster.get("widgets", "one")) == [finalizer]
    cluster.delete("widgets", "one")
    cluster.wait_until_gone("widgets", "one")
    running.settle()
    assert running.of("sync") == [False, True, True, True]


ORDERED = """
import kopf

@kopf.on.reconcile("widgets", deletion=True)
async def sync(memo, deleting, **_):
    memo.calls.append(("sync", deleting, memo.sent()))
"""


@pytest.mark.kopf_embedded_only
def test_1_14_14_the_requests_are_in_order(run, make, cluster):
    def sent():
        """The requests of the operator so far: the log has none of the test itself."""
        written = [request for request in cluster.requests if request.method != "GET"]
        return [(request.method, request.path.rpartition("/")[2]) for request in written]

    running = run(source=ORDERED, share={"sent": sent})
    make()
    running.until("sync")
    cluster.delete("widgets", "one")
    cluster.wait_until_gone("widgets", "one")
    # The finalizer is added before the first call, and removed after the last one.
    patch = ("PATCH", "one")
    assert running.of("sync") == [(False, [patch]), (True, [patch])]
    assert sent() == [patch, patch]


@pytest.mark.kopf_embedded_only
def test_1_8_f1_an_edit_is_repeated_after_a_404_that_is_no_deletion(run, make, cluster, finalizer):
    cluster.freeze()
    cluster.inject("code", 404, verb="patch", resource="widgets", times=1)
    running = run(source=DELETING)
    make()
    running.settle()
    assert not running.of("sync")
    cluster.advance(5)
    assert running.of("sync") == [False]
    assert finalizers_of(cluster.get("widgets", "one")) == [finalizer]


@pytest.mark.kopf_embedded_only
def test_1_8_f6_a_rejected_edit_is_repeated_with_delays_and_not_at_the_exit(run, make, cluster, caplog):
    cluster.freeze()
    cluster.inject("code", 403, verb="patch", resource="widgets")
    settings = kopf.OperatorSettings()
    settings.networking.error_backoffs = []
    running = run(source=DELETING, settings=settings)
    make()
    running.settle()

    def sent():
        return len([request for request in cluster.requests if request.method == "PATCH"])

    assert sent() == 1
    cluster.advance(1)
    assert sent() == 2
    running.stop()
    # Its end moves the frozen time.
    assert sent() <= 3
    lines = [it.getMessage() for it in caplog.records if "Cannot edit the finalizer" in it.getMessage()]
    assert len(lines) == sent()
    assert lines[0].endswith(" It is repeated in 1 seconds.")
    assert not running.of("sync")


def test_1_8_f7_an_object_without_the_finalizer_is_not_handled_when_it_is_deleted(run, make, cluster):
    make(finalizers=["example.com/other"])
    cluster.delete("widgets", "one")
    running = run(source=DELETING)
    make("two")
    running.until("sync")
    running.settle()
    assert running.of("sync") == [False]
    cluster.patch("widgets", "one", {"metadata": {"finalizers": None}})


TWO = """
import kopf

@kopf.on.reconcile("widgets", id="a", deletion=True, finalizer="example.com/a")
def first(memo, deleting, **_):
    memo.calls.append(("a", deleting))

@kopf.on.reconcile("widgets", id="b", deletion=True, finalizer="example.com/b")
def second(memo, deleting, **_):
    memo.calls.append(("b", deleting))
    if deleting and not memo.gate.is_set():
        raise kopf.TemporaryError("not yet", delay=0.1)
"""


def test_1_14_16_each_finalizer_goes_with_its_own_function(run, make, cluster):
    gate = threading.Event()
    running = run(source=TWO, share={"gate": gate})
    make()
    running.until("a")
    running.until("b")
    assert sorted(finalizers_of(cluster.get("widgets", "one"))) == ["example.com/a", "example.com/b"]
    cluster.delete("widgets", "one")
    cluster.wait_for("widgets", "one", lambda body: finalizers_of(body) == ["example.com/b"])
    gate.set()
    cluster.wait_until_gone("widgets", "one")
    running.settle()
    assert running.of("a") == [False, True]
    assert running.of("b")[-1] is True


TOGETHER = """
import kopf

@kopf.on.create("widgets")
def created(memo, **_):
    memo.calls.append(("created", None))

@kopf.on.reconcile("widgets", deletion=True)
def sync(memo, deleting, **_):
    memo.calls.append(("sync", deleting))
    if deleting and not memo.gate.is_set():
        raise kopf.TemporaryError("not yet", delay=0.1)
"""


def test_1_8_f8_the_operators_finalizer_waits_for_the_reconciler(run, make, cluster, finalizer):
    gate = threading.Event()
    running = run(source=TOGETHER, share={"gate": gate})
    make()
    running.until("created")
    running.until("sync")
    assert finalizers_of(cluster.get("widgets", "one")) == [finalizer]
    cluster.delete("widgets", "one")
    running.until("sync", 3)
    assert finalizers_of(cluster.get("widgets", "one")) == [finalizer]
    gate.set()
    cluster.wait_until_gone("widgets", "one")
    running.settle()
    assert running.of("created") == [None]


def test_1_8_without_deletion_there_is_no_finalizer_and_no_call(run, make, cluster):
    running = run()
    make(finalizers=["example.com/other"])
    running.until("sync")
    cluster.delete("widgets", "one")
    running.settle()
    assert finalizers_of(cluster.get("widgets", "one")) == ["example.com/other"]
    assert len(running.of("sync")) == 1
    cluster.patch("widgets", "one", {"metadata": {"finalizers": None}})


STOPPING = """
import kopf

@kopf.on.reconcile("widgets")
async def sync(stopped, memo, **_):
    memo.calls.append(("sync", "started"))
    await stopped.wait()
    memo.stopped.set()
    await memo.gate()
    memo.calls.append(("sync", "ended"))

@kopf.on.event("widgets")
def noticed(event, memo, **_):
    memo.calls.append(("noticed", event["type"]))

@kopf.on.delete("widgets")
def deleted(memo, **_):
    memo.calls.append(("deleted", None))
"""


def test_1_8_deletion_handlers_start_after_the_running_call(run, make, cluster):
    stopped, gate = threading.Event(), threading.Event()

    async def opened():
        await asyncio.to_thread(gate.wait, 30)

    running = run(source=STOPPING, share={"stopped": stopped, "gate": opened})
    make()
    cluster.wait_for("widgets", "one", finalizers_of)
    running.until("sync")
    before = len(running.of("noticed"))
    cluster.delete("widgets", "one")
    assert stopped.wait(30)
    # The handling cycle of the deletion has begun: its event handlers do not wait.
    running.until("noticed", before + 1)
    assert running.of("deleted") == []
    gate.set()
    cluster.wait_until_gone("widgets", "one")
    running.settle()
    calls = [call for call in running.memo.calls.calls if call[0] != "noticed"]
    assert calls == [("sync", "started"), ("sync", "ended"), ("deleted", None)]


@pytest.mark.kopf_embedded_only
def test_1_8_deletion_handlers_do_not_wait_longer_than_the_exit_timeout(run, make, cluster):
    cluster.freeze()

    async def never():
        await asyncio.Event().wait()

    running = run(source=STOPPING, share={"stopped": threading.Event(), "gate": never})
    make()
    running.settle()
    cluster.delete("widgets", "one")
    running.settle()
    cluster.advance(19)
    assert running.of("deleted") == []
    cluster.advance(2)
    cluster.wait_until_gone("widgets", "one")
    assert running.of("deleted") == [None]


def test_1_14_15_no_removal_of_a_finalizer_is_lost(run, make, cluster):
    """Another controller removes its own finalizer at the same time."""
    running = run(source=DELETING)
    names = [f"w{number}" for number in range(ATTEMPTS)]
    for name in names:
        make(name, finalizers=["example.com/other"])
    running.until("sync", len(names))

    def remove(name):
        body = cluster.get("widgets", name)
        while body is not None and "example.com/other" in finalizers_of(body):
            kept = [it for it in finalizers_of(body) if it != "example.com/other"]
            meta = {"finalizers": kept, "resourceVersion": body["metadata"]["resourceVersion"]}
            with contextlib.suppress(ApiError):  # a conflict, or it is gone
                cluster.patch("widgets", name, {"metadata": meta})
            body = cluster.find("widgets", name)

    def delete(name):
        cluster.delete("widgets", name)
        remove(name)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(delete, names))
    for name in names:
        cluster.wait_until_gone("widgets", name, timeout=60)
    running.settle()
    assert sorted(running.of("sync")) == [False] * ATTEMPTS + [True] * ATTEMPTS


GUARDED = """
import kopf

@kopf.on.reconcile("widgets")
def sync(meta, memo, **_):
    memo.calls.append(("sync", list(meta.get("finalizers", []))))

@kopf.on.reconcile("widgets", id="own", deletion=True, finalizer="example.com/own")
def own(meta, deleting, memo, **_):
    if not deleting:
        memo.calls.append(("own", sorted(meta.get("finalizers", []))))

@kopf.on.delete("widgets", labels={"guarded": "yes"})
def deleted(name, memo, **_):
    memo.calls.append(("deleted", name))
"""


@pytest.mark.kopf_embedded_only
def test_1_8_calls_wait_for_the_finalizer_of_deletion_handlers(run, make, cluster, finalizer):
    cluster.freeze()
    cluster.inject("code", 503, verb="patch", resource="widgets", times=3)
    running = run(source=GUARDED)
    make(labels={"guarded": "yes"})
    make("two")
    running.settle()
    assert running.of("sync") == [[]], "no deletion handler matches the other one"
    cluster.advance(30)
    running.settle()
    # Both reconcilers; the second one adds a separate finalizer.
    [unguarded, guarded] = running.of("sync")
    assert (unguarded, finalizer in guarded) == ([], True)
    assert sorted(running.of("own")) == [["example.com/own"], ["example.com/own", finalizer]]
    cluster.delete("widgets", "one")
    cluster.wait_until_gone("widgets", "one")
    assert running.of("deleted") == ["one"]


FILTERED = """
import kopf

@kopf.on.reconcile("widgets", when=lambda spec, **_: spec["size"] > 0, deletion=True)
def sync(spec, memo, **_):
    memo.calls.append(("sync", spec["size"]))
"""


def test_1_8_f7_a_primary_that_a_function_excludes_loses_the_finalizer(run, make, cluster):
    running = run(source=FILTERED)
    make()
    running.until("sync")
    cluster.patch("widgets", "one", {"spec": {"size": 0}})
    cluster.wait_for("widgets", "one", lambda body: not finalizers_of(body))
    running.settle()
    assert running.of("sync") == [1]
    assert finalizers_of(cluster.get("widgets", "one")) == []


RESTARTED = """
import kopf

def matches(name, spec, memo, **_):
    if name in memo.get("failing", ()):
        raise ValueError("boo")
    return spec["size"] > 0

@kopf.on.create("widgets")
def created(**_):
    pass

@kopf.on.reconcile("widgets", when=matches, deletion=True)
def sync(memo, deleting, **_):
    memo.calls.append(("sync", deleting))
    if deleting and "gate" in memo and not memo.gate.is_set():
        raise kopf.TemporaryError("not yet", delay=0.1)
"""


@pytest.fixture
def stopped(run, make):
    """A primary of an operator that has stopped."""
    running = run(source=RESTARTED)
    make()
    running.until("sync")
    running.settle()
    running.stop()


@pytest.mark.usefixtures("stopped")
def test_1_8_f8_the_operators_finalizer_waits_for_filters_at_the_start(run, cluster, finalizer):
    cluster.delete("widgets", "one")
    gate = threading.Event()
    running = run(source=RESTARTED, share={"gate": gate})
    running.until("sync", 2)
    assert finalizers_of(cluster.get("widgets", "one")) == [finalizer]
    gate.set()
    cluster.wait_until_gone("widgets", "one")
    running.settle()
    assert set(running.of("sync")) == {True}


@pytest.mark.usefixtures("stopped")
@pytest.mark.parametrize("is_deleted", [False, True])
def test_1_8_f7_an_object_that_does_not_match_at_the_start_loses_the_finalizer(run, cluster, is_deleted):
    cluster.patch("widgets", "one", {"spec": {"size": 0}})
    if is_deleted:
        cluster.delete("widgets", "one")
    running = run(source=RESTARTED)
    if is_deleted:
        cluster.wait_until_gone("widgets", "one")
    else:
        cluster.wait_for("widgets", "one", lambda body: not finalizers_of(body))
    running.settle()
    assert running.of("sync") == []


@pytest.mark.kopf_embedded_only
def test_1_8_f8_the_operators_finalizer_waits_for_filters_that_fail(run, make, cluster, finalizer):
    cluster.freeze()
    running = run(source=RESTARTED)
    make()
    running.settle()
    running.stop()
    cluster.delete("widgets", "one")
    failing = {"one"}
    running = run(source=RESTARTED, share={"failing": failing}, strict=False)
    running.settle()
    cluster.advance(120)
    assert finalizers_of(cluster.get("widgets", "one")) == [finalizer]
    failing.clear()
    cluster.advance(300)
    cluster.wait_until_gone("widgets", "one")
    assert running.of("sync") == [True]


LABELLED = """
import kopf

@kopf.on.create("widgets")
def created(**_):
    pass

@kopf.on.reconcile("widgets", labels={"managed": "yes"}, deletion=True, finalizer="example.com/own")
def sync(memo, **_):
    memo.calls.append(("sync", None))
"""


def test_1_8_f7_a_separate_finalizer_is_removed_at_the_start_also_with_change_handlers(run, make, cluster):
    running = run(source=LABELLED)
    make(labels={"managed": "yes"})
    running.until("sync")
    running.settle()
    running.stop()
    cluster.patch("widgets", "one", {"metadata": {"labels": {"managed": "no"}}})
    assert finalizers_of(cluster.get("widgets", "one")) == ["example.com/own"]
    running = run(source=LABELLED)
    cluster.wait_for("widgets", "one", lambda body: not finalizers_of(body))
    running.settle()
    assert running.of("sync") == []
