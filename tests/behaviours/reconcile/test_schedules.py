"""Reconcilers: when they are called. Section 1.14, scenarios 1 to 8, 19, 24."""

import collections
import itertools
import os
import random
import threading

import kopf
import pytest

# On purpose: operators are not strict here.
HANDLERS_RAISE = True
# `make schedules` takes 5,000 primaries, as the text of the scenario, and more seeds.
PRIMARIES = int(os.environ.get("SCHEDULE_PRIMARIES", "1500"))
SEED = int(os.environ.get("SCHEDULE_SEED", "1"))


@pytest.fixture
def frozen(cluster):
    cluster.freeze()
    return cluster


def ours(body):
    return [key for key in body["metadata"].get("annotations", {}) if "kopf" in key]


def test_1_14_1_each_primary_is_reconciled_once_at_the_start_without_annotations(run, make, cluster):
    for name in ("one", "two", "three"):
        make(name)
    running = run()
    running.until("sync", 3)
    running.settle()
    assert sorted(call[0] for call in running.of("sync")) == ["one", "three", "two"]
    assert not any(ours(body) for body in cluster.list("widgets"))
    assert not any(body["metadata"].get("finalizers") for body in cluster.list("widgets"))


BLOCKING = """
import kopf

@kopf.on.event("widgets")
def noticed(spec, memo, **_):
    memo.calls.append(("noticed", spec["size"]))

@kopf.on.event("configmaps", labels={"child": "yes"})
def noticed_child(body, memo, **_):
    memo.calls.append(("noticed_child", body["data"]["x"]))

@kopf.on.reconcile("widgets", owns=["configmaps"])
def sync(spec, memo, children, **_):
    memo.calls.append(("sync", spec["size"], [child["data"]["x"] for child in children["configmaps"]]))
    if not memo.blocked.is_set():
        memo.blocked.set()
        memo.gate.wait(60)
"""


def test_1_14_2_changes_during_a_call_lead_to_exactly_one_more(run, make, cluster):
    blocked, gate = threading.Event(), threading.Event()
    running = run(share={"blocked": blocked, "gate": gate}, source=BLOCKING)
    body = make()
    assert blocked.wait(30)
    owner = kopf.build_owner_reference(body)
    metadata = {"name": "child", "ownerReferences": [owner], "labels": {"child": "yes"}}
    cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": "1"}})
    for size in range(2, 52):
        cluster.patch("widgets", "one", {"spec": {"size": size}})
        cluster.patch("configmaps", "child", {"data": {"x": str(size)}})
    # The other handlers of the same watches show when the operator has received all of these.
    _until_noticed(running, "noticed", 51)
    _until_noticed(running, "noticed_child", "51")
    gate.set()
    running.until("sync", 2)
    running.settle()
    assert running.of("sync") == [(1, []), (51, ["51"])]


def _until_noticed(running, handler, value):
    """Wait until the handler has seen the value: states in between may be skipped."""
    count = 1
    while value not in running.of(handler):
        running.until(handler, count)
        count = len(running.of(handler)) + 1


RANDOM = """
import asyncio
import kopf

@kopf.on.reconcile("widgets", initial=False, concurrency=20)
async def sync(name, memo, stopped, **_):
    results = memo.random
    memo.calls.append(("begin", name))
    duration = results.choice([0, 0, 0.1, 1, 5])
    if duration:
        await stopped.wait(duration)
    memo.calls.append(("end", name))
    memo.calls.append(("sync", name))
    result = results.random()
    if result < 0.1:
        memo.calls.append(("time", name))
        raise ValueError("boo")
    if result < 0.2:
        memo.calls.append(("time", name))
        return kopf.Requeue(results.choice([0.5, 3, 20]))
    return None
"""


@pytest.mark.kopf_embedded_only
def test_1_14_3_random_triggers_keep_the_laws_of_schedules(run, make, frozen):
    numbers = random.Random(SEED)
    names = [f"n{number}" for number in range(100)]
    for name in names:
        make(name)
    running = run(source=RANDOM, share={"random": random.Random(-SEED)})
    running.settle()
    registry, calls = running.operator.registry, running.memo.calls.calls
    triggers, last_triggers = collections.Counter(), {}
    for _ in range(200):
        for name in numbers.choices(names, k=50):
            last_triggers[name] = len(calls)
            kopf.trigger(("widgets", name, frozen.namespace), registry=registry)
            triggers[name] += 1
        frozen.advance(numbers.choice([0.05, 0.3, 1, 4]))
    # All delays are over: the longest one is that of 300 seconds, and few primaries fail ten times in a row.
    frozen.advance(2000)
    running_now = set()
    for kind, name in calls:
        if kind == "begin":
            assert name not in running_now, "two reconciliations of one primary at a time"
            running_now.add(name)
        elif kind == "end":
            running_now.remove(name)
    assert not running_now
    for name, position in last_triggers.items():
        assert ("begin", name) in calls[position:], "a trigger is lost"
    begun = running.of("begin")
    times = collections.Counter(running.of("time"))
    for name, count in collections.Counter(begun).items():
        assert count <= triggers[name] + times[name]
    assert triggers.total() == 10_000
    frozen.advance(1000)
    assert len(running.of("begin")) == len(begun), "without triggers and requests, nothing is called"


@pytest.mark.kopf_embedded_only
def test_1_14_4_a_requeue_is_due_at_its_time_and_a_change_is_earlier(run, make, frozen):
    running = run()
    make(spec={"size": 1, "requeue": 300})
    running.settle()
    assert running.of("sync") == [("one", 1, 0)]
    frozen.advance(299)
    assert len(running.of("sync")) == 1
    frozen.advance(1)
    assert len(running.of("sync")) == 2
    frozen.advance(1)
    frozen.patch("widgets", "one", {"spec": {"size": 2, "requeue": None}})
    running.settle()
    assert running.of("sync")[2:] == [("one", 2, 0)]
    frozen.advance(1000)
    assert len(running.of("sync")) == 3


RETRIED = """
import kopf

@kopf.on.reconcile("widgets")
def sync(spec, retry, memo, **_):
    memo.calls.append(("sync", retry, memo.now()))
    if spec["fails"]:
        raise ValueError("boo")
"""


@pytest.mark.kopf_embedded_only
def test_1_14_5_failures_are_retried_with_growing_delays_until_a_success(run, make, frozen):
    running = run(source=RETRIED, share={"now": lambda: frozen.now})
    make(spec={"fails": True})
    running.settle()
    delays = [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]

    def pauses():
        starts = [start for _, start in running.of("sync")]
        return [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(starts)]

    frozen.advance(sum(delays) * 1.2 + 10)
    for pause, delay in zip(pauses(), delays, strict=False):
        assert delay <= pause <= delay * 1.2 + 0.1
    assert len(pauses()) >= len(delays)
    assert [retry for retry, _ in running.of("sync")] == list(range(len(running.of("sync"))))
    # A success ends the series: the next one begins with the first delay.
    frozen.patch("widgets", "one", {"spec": {"fails": False}})
    frozen.advance(1.5)
    assert running.of("sync")[-1][0] > 0
    before = len(running.of("sync"))
    frozen.patch("widgets", "one", {"spec": {"fails": True}})
    frozen.advance(4)
    assert [retry for retry, _ in running.of("sync")[before:]] == [0, 1, 2]
    assert all(
        delay <= pause <= delay * 1.2 + 0.1 for pause, delay in zip(pauses()[-2:], [1, 2], strict=True)
    )


@pytest.mark.kopf_embedded_only
def test_1_6_a_temporary_error_has_its_own_delay(run, make, frozen):
    running = run()
    make(spec={"size": 1, "delay": 100})
    running.settle()
    frozen.advance(99)
    assert len(running.of("sync")) == 1
    frozen.advance(1)
    assert [call[2] for call in running.of("sync")] == [0, 1]


@pytest.mark.kopf_embedded_only
def test_1_14_7_after_a_permanent_error_only_a_change_starts_it_again(run, make, frozen):
    running = run()
    make(spec={"size": 1, "permanent": True})
    running.settle()
    frozen.advance(3600)
    assert running.of("sync") == [("one", 1, 0)]
    frozen.patch("widgets", "one", {"spec": {"size": 2}})
    running.settle()
    assert running.of("sync") == [("one", 1, 0), ("one", 2, 0)]


def test_1_14_8_the_status_is_no_trigger_by_default(run, make, cluster):
    running = run()
    make()
    running.until("sync")
    cluster.patch("widgets", "one", {"status": {"any": "thing"}}, subresource="status")
    cluster.patch("widgets", "one", {"metadata": {"labels": {"a": "b"}}})
    running.until("sync", 2)
    cluster.patch("widgets", "one", {"metadata": {"annotations": {"a": "b"}}})
    running.until("sync", 3)
    cluster.patch("widgets", "one", {"spec": {"size": 2}})
    running.until("sync", 4)
    running.settle()
    assert [call[1] for call in running.of("sync")] == [1, 1, 1, 2]


GENERATION = """
import kopf

@kopf.on.reconcile("widgets", changed="generation")
def sync(spec, memo, **_):
    memo.calls.append(("sync", spec["size"]))
"""


def test_1_14_8_only_the_generation_if_asked_for(run, make, cluster):
    running = run(source=GENERATION)
    make()
    running.until("sync")
    cluster.patch("widgets", "one", {"status": {"any": "thing"}}, subresource="status")
    cluster.patch("widgets", "one", {"metadata": {"labels": {"a": "b"}}})
    cluster.patch("widgets", "one", {"metadata": {"annotations": {"a": "b"}}})
    cluster.patch("widgets", "one", {"spec": {"size": 2}})
    running.until("sync", 2)
    running.settle()
    assert running.of("sync") == [1, 2]


DEBOUNCED = """
import kopf

@kopf.on.reconcile("widgets", debounce=0.5)
def sync(spec, memo, **_):
    memo.calls.append(("sync", spec["size"], memo.now()))
"""


@pytest.mark.kopf_embedded_only
def test_1_14_24_debouncing_is_bounded(run, make, frozen):
    running = run(source=DEBOUNCED, share={"now": lambda: frozen.now})
    make()
    running.settle()
    frozen.advance(1)
    assert [size for size, _ in running.of("sync")] == [1]
    begin = frozen.now
    for size in range(2, 202):
        frozen.patch("widgets", "one", {"spec": {"size": size}})
        frozen.advance(0.1)
    # 20 seconds of changes: at least one call in each 5 seconds, and much fewer than changes.
    starts = [begin, *(start for _, start in running.of("sync")[1:]), frozen.now]
    pauses = [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(starts)]
    assert max(pauses) <= 5.2
    assert 4 <= len(pauses) <= 6
    frozen.advance(1)
    assert running.of("sync")[-1][0] == 201


def test_1_2_the_pause_annotation_keeps_triggers(run, make, cluster):
    running = run()
    make(annotations={"kit.kopf.zalando.org/paused": "true"})
    make("two")
    running.until("sync")
    cluster.patch("widgets", "one", {"spec": {"size": 2}})
    cluster.patch("widgets", "one", {"spec": {"size": 3}})
    running.settle()
    assert [call[0] for call in running.of("sync")] == ["two"]
    cluster.patch("widgets", "one", {"metadata": {"annotations": {"kit.kopf.zalando.org/paused": None}}})
    running.until("sync", 2)
    running.settle()
    assert running.of("sync")[1:] == [("one", 3, 0)]


RESYNCED = """
import kopf

@kopf.on.reconcile("widgets", resync=100)
def sync(spec, memo, **_):
    memo.calls.append(("sync", spec["size"]))
"""


@pytest.mark.kopf_embedded_only
def test_1_3_a6_a_success_is_followed_by_a_resync(run, make, frozen):
    running = run(source=RESYNCED)
    make()
    running.settle()
    frozen.advance(89)
    assert len(running.of("sync")) == 1
    frozen.advance(21)
    assert len(running.of("sync")) == 2


FILTERED = """
import kopf

@kopf.on.reconcile("widgets", when=lambda spec, **_: spec["size"] > 1)
def sync(spec, memo, **_):
    memo.calls.append(("sync", spec["size"]))
"""


def test_1_2_a_primary_that_begins_to_match_is_reconciled(run, make, cluster):
    running = run(source=FILTERED)
    make()
    make("two", spec={"size": 2})
    running.until("sync")
    cluster.patch("widgets", "one", {"spec": {"size": 3}})
    running.until("sync", 2)
    cluster.patch("widgets", "one", {"spec": {"size": 0}})
    running.settle()
    assert running.of("sync") == [2, 3]


FAILING_FILTER = """
import kopf

def matches(name, memo, **_):
    if name in memo.failing:
        raise ValueError("boo")
    return True

@kopf.on.reconcile("widgets", when=matches, deletion=True)
def sync(name, memo, **_):
    memo.calls.append(("sync", name))
"""


@pytest.mark.kopf_embedded_only
def test_1_2_while_a_filter_fails_primaries_stay_and_new_objects_wait(run, make, frozen, finalizer, caplog):
    failing = set()
    running = run(source=FAILING_FILTER, share={"failing": failing}, strict=False)
    make()
    running.settle()
    failing.update(["one", "two"])
    frozen.patch("widgets", "one", {"spec": {"size": 2}})
    make("two")
    running.settle()
    assert running.of("sync") == ["one", "one"]
    finalizers = [frozen.get("widgets", name)["metadata"].get("finalizers") for name in ("one", "two")]
    assert finalizers == [[finalizer], None]
    frozen.advance(60)
    assert running.of("sync") == ["one", "one"]
    lines = [it.getMessage() for it in caplog.records if "has failed: boo" in it.getMessage()]
    assert len(lines) == 2
    failing.clear()
    frozen.advance(300)
    assert running.of("sync") == ["one", "one", "two"]


INITIAL = """
import kopf

@kopf.on.reconcile("widgets", id="none", initial=False)
def none(name, memo, **_):
    memo.calls.append(("none", name))

@kopf.on.reconcile("widgets", id="unobserved", initial="unobserved", observe=True)
def unobserved(name, memo, **_):
    memo.calls.append(("unobserved", name))
"""


def test_1_11_3_the_initial_list_can_be_limited(run, make, cluster):
    make("one")
    first = run(source=INITIAL)
    first.until("unobserved")
    first.settle()
    assert first.of("none") == []
    observed = cluster.get("widgets", "one")
    assert observed["status"]["observedGeneration"] == observed["metadata"]["generation"]
    first.stop()
    second = run(source=INITIAL)
    second.settle()
    make("two")
    second.until("unobserved")
    second.until("none")
    second.settle()
    assert (second.of("none"), second.of("unobserved")) == (["two"], ["two"])


FAILING_SERIES = """
import kopf

delays = kopf.Backoff(first=1, factor=2, most=300, jitter=0)

@kopf.on.reconcile("widgets", owns=["configmaps"], backoff=delays)
def sync(name, memo, **_):
    memo.calls.append(("sync", memo.now()))
    raise ValueError("boo")
"""


@pytest.mark.kopf_embedded_only
def test_1_14_6_changes_of_children_do_not_make_the_delays_longer(run, make, frozen):
    running = run(source=FAILING_SERIES, share={"now": lambda: frozen.now})
    body = make()
    metadata = {"name": "child", "ownerReferences": [kopf.build_owner_reference(body)]}
    running.settle()

    def pauses():
        starts = running.of("sync")
        return [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(starts)]

    frozen.advance(7)
    assert [round(pause) for pause in pauses()] == [1, 2, 4]
    frozen.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {}})
    for number in range(100):
        frozen.patch("configmaps", "child", {"data": {"x": str(number)}})
        frozen.advance(0.1)
    frozen.advance(1)
    triggered = pauses()[3:]
    assert len(triggered) >= 9 and min(triggered) >= 1
    # The calls for changes were no elapsed delays: the next ones are 8 and 16, not 300.
    frozen.advance(25)
    own = pauses()[3 + len(triggered) :]
    assert [round(pause) for pause in own] == [8, 16]


@pytest.mark.kopf_embedded_only
def test_1_14_19_changes_come_before_the_initial_list_but_do_not_starve_it(run, make, cluster):
    """Of 13 permits, 8 are for changes and one is for the initial list while both wait."""
    total = 60
    for number in range(total):
        make(f"old{number}", spec={"size": 0})
    gate = threading.Event()
    running = run(source=QUEUED, share={"gate": gate})
    running.until("sync")
    for number in range(total):
        make(f"new{number}", spec={"size": 1})
    cluster.wait_for("widgets", f"new{total - 1}")
    # A watch delivers events in their order: when this one has been noticed, all have.
    running.until("noticed", 2 * total)
    gate.set()
    running.until("sync", 2 * total)
    sizes = running.of("sync")[1:]
    changed = [position for position, size in enumerate(sizes) if size == 1]
    initial = [position for position, size in enumerate(sizes) if size == 0]
    assert changed[-1] < initial[-1]
    # Among the first permits, the initial list gets one of nine: 8 : 1, as nothing is scheduled.
    first = sizes[:45]
    assert 4 <= first.count(0) <= 6, first
    running.settle()


LOADED = """
import kopf

@kopf.on.reconcile("widgets", concurrency=32)
async def sync(name, stopped, memo, **_):
    memo.calls.append(("sync", name, memo.now()))
    # In virtual time.
    await stopped.wait(memo.random.uniform(0.02, 0.08))
"""
MEAN = 0.05
PERMITS = 32


@pytest.fixture
def loaded(run, frozen):
    """Starts an operator with so many primaries; each call takes some virtual time."""

    def start(count):
        path = f"/apis/behaviours.example.com/v1/namespaces/{frozen.namespace}/widgets"
        widget = {"apiVersion": "behaviours.example.com/v1", "kind": "Widget", "spec": {"size": 0}}
        bodies = ({**widget, "metadata": {"name": f"w{number}"}} for number in range(count))
        frozen.call_all([("POST", path, body) for body in bodies])
        running = run(source=LOADED, share={"now": lambda: frozen.now, "random": random.Random(1)})
        running.settle()
        return running, frozen.now

    return start


@pytest.mark.kopf_embedded_only
@pytest.mark.timeout(600)
def test_1_14_19_changes_start_soon_while_the_initial_list_is_reconciled(loaded, frozen):
    """Many primaries at the start, and 100 changes per second: p99 of the latency is below 0.1 s."""
    total, changed = PRIMARIES, {}
    running, begin = loaded(total)
    for number in range(total * 3 // 50):
        name = f"w{total - 1 - number * 7}"
        frozen.patch("widgets", name, {"spec": {"size": number + 1}})
        changed[name] = frozen.now
        frozen.advance(0.01)
    assert len({name for name, _ in running.of("sync")}) < total, "changes arrive during the initial list"
    frozen.advance(10)
    starts = collections.defaultdict(list)
    for name, start in running.of("sync"):
        starts[name].append(start)
    assert len(starts) == total
    latencies = sorted(
        min(start - since for start in starts[name] if start >= since).total_seconds()
        for name, since in changed.items()
    )
    assert latencies[len(latencies) * 99 // 100] < 0.1
    last = max(times[0] for times in starts.values())
    # Without changes, all permits are for the initial list.
    assert (last - begin).total_seconds() <= 1.5 * total * MEAN / PERMITS


@pytest.mark.kopf_embedded_only
@pytest.mark.timeout(600)
def test_1_14_19_the_initial_list_does_not_starve_behind_changes(loaded, frozen):
    """While there are always waiting changes, the initial list takes at most 13 times as long as alone."""
    total, hot = 400, [f"w{number}" for number in range(200)]
    running, begin = loaded(total)
    registry = running.operator.registry
    ideal = (total - len(hot)) * MEAN / PERMITS
    while (frozen.now - begin).total_seconds() < 13 * ideal:
        # More work than 32 calls at a time can do.
        for name in hot:
            kopf.trigger(("widgets", name, frozen.namespace), registry=registry)
        frozen.advance(0.1)
    calls = running.of("sync")
    rest = {f"w{number}" for number in range(len(hot), total)}
    assert rest <= {name for name, _ in calls}
    # The changes were always ahead.
    assert sum(name in hot for name, _ in calls) > 5 * len(rest)


QUEUED = """
import kopf

@kopf.on.event("widgets")
def noticed(name, memo, **_):
    memo.calls.append(("noticed", name))

@kopf.on.reconcile("widgets", concurrency=1)
def sync(spec, memo, **_):
    memo.calls.append(("sync", spec["size"]))
    memo.gate.wait(30)
"""
