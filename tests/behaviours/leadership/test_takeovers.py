"""Takeovers: the calls of the next leader, and those that a leader finishes before it releases the lease."""

import asyncio
import threading

import kopf
import pytest

pytestmark = pytest.mark.kopf_embedded_only

LEASE = ("leases", "widgets-operator")
GADGETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.behaviours.example.com}
spec:
  group: behaviours.example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


@pytest.fixture
def start(kopf_operator):
    """Starts a replica with these handlers."""

    def start(identity, handlers):
        settings = kopf.OperatorSettings()
        leadership = settings.leadership
        leadership.enabled, leadership.name, leadership.namespace = True, LEASE[1], "default"
        leadership.identity = identity
        return kopf_operator(handlers, settings=settings)

    return start


def holder(cluster):
    return cluster.get(*LEASE, namespace="default")["spec"]["holderIdentity"]


def test_calls_are_finished_and_their_outcomes_written_before_the_release(cluster, start, make):
    """LEA-2."""
    calls, proceed, leaving = [], threading.Event(), threading.Event()
    begun = threading.Barrier(3)

    def handlers_of(identity):
        def handlers():
            @kopf.on.create("widgets")
            async def coroutine(name, **_):
                calls.append((identity, "coroutine", name))
                if name == "first":
                    await asyncio.to_thread(begun.wait, 60)
                    await asyncio.to_thread(proceed.wait, 60)
                return "done"

            @kopf.on.create("widgets", labels={"twice": "yes"})
            def thread(name, **_):
                calls.append((identity, "thread", name))
                begun.wait(60)
                proceed.wait(60)
                return "done"

            # Daemons are stopped when the operator takes no events any more.
            @kopf.daemon("widgets", labels={"daemon": "yes"})
            async def daemon(stopped, **_):
                await stopped.wait()
                leaving.set()

        return handlers

    first = start("one", handlers_of("one"))
    make("other", labels={"daemon": "yes"})
    cluster.wait_for("widgets", "other", lambda body: body.get("status"))
    second = start("two", handlers_of("two"))
    second.wait_until_idle()
    make("first")
    make("second", labels={"twice": "yes"})
    begun.wait(60)
    stopping = threading.Thread(target=first.stop)
    stopping.start()
    assert leaving.wait(60)
    make("waiting")
    assert holder(cluster) == "one"
    proceed.set()
    stopping.join(60)
    cluster.wait_for("widgets", "waiting", lambda body: body.get("status"))
    assert holder(cluster) == "two"
    requests = [it for it in cluster.requests if it.method in ("PATCH", "PUT") and it.code == 200]
    released = next(
        position
        for position, it in enumerate(requests)
        if it.path.endswith(LEASE[1]) and it.json["spec"]["holderIdentity"] == ""
    )
    outcomes = [
        position
        for position, it in enumerate(requests)
        if it.path.partition("/widgets/")[2].split("/")[0] in ("first", "second") and "status" in it.json
    ]
    assert outcomes
    assert max(outcomes) < released
    assert sorted(calls) == sorted(set(calls)), "no handler is called twice"
    assert ("two", "coroutine", "waiting") in calls
    assert [call for call in calls if call[0] == "two"] == [("two", "coroutine", "waiting")]


def test_a_takeover_handles_only_what_has_changed_with_few_requests(cluster, start, make):
    """LEA-10, with fewer objects."""
    cluster.freeze()
    calls = []

    def handlers():
        @kopf.on.create("widgets")
        async def create(name, **_):
            calls.append(name)

    first = start("one", handlers)
    cluster.advance(5)
    names = [f"idle-{number}" for number in range(50)]
    for name in names:
        make(name)
    cluster.advance(5)
    assert sorted(calls) == sorted(names)
    start("two", handlers)
    cluster.advance(5)
    cluster.patch(*LEASE, {"spec": {"holderIdentity": "crashed", "leaseTransitions": 1}}, namespace="default")
    cluster.advance(5)
    calls.clear()
    make("new")
    count, _ = cluster.requests_since(0)
    cluster.advance(20)
    assert calls == ["new"]
    assert holder(cluster) in ("one", "two")
    _, requests = cluster.requests_since(count)
    others = [it for it in requests if "/leases" not in it.path]
    assert len(others) <= 20, others
    assert first.running


def test_what_appears_during_standby_is_handled_after_the_takeover(cluster, start, make):
    """LEA-12."""
    cluster.freeze()
    calls = []

    def handlers_of(identity):
        def handlers():
            @kopf.on.event("gadgets")
            @kopf.on.event("widgets")
            async def event(type, namespace, name, **_):
                calls.append((identity, type, namespace, name))

        return handlers

    first = start("one", handlers_of("one"))
    cluster.advance(5)
    start("two", handlers_of("two"))
    cluster.advance(5)
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fresh"}})
    make("late", namespace="fresh")
    cluster.apply(GADGETS)
    gadget = {"apiVersion": "behaviours.example.com/v1", "kind": "Gadget"}
    cluster.create({**gadget, "metadata": {"name": "it", "namespace": "fresh"}})
    cluster.advance(10)
    assert {call[0] for call in calls} == {"one"}
    first.stop()
    calls.clear()
    cluster.advance(5)
    assert sorted(calls) == [("two", None, "fresh", "it"), ("two", None, "fresh", "late")]


def test_the_indices_of_a_standby_follow_the_cluster(cluster, start, make):
    cluster.freeze()
    views, calls = {}, []

    def handlers_of(identity):
        def handlers():
            @kopf.on.startup()
            def look(sizes, **_):
                views[identity] = sizes

            @kopf.index("widgets")
            async def sizes(name, spec, **_):
                calls.append(identity)
                return {name: spec["size"]}

        return handlers

    def indexed():
        return [{name: list(view[name]) for name in view} for _, view in sorted(views.items())]

    make("before")
    first = start("one", handlers_of("one"))
    cluster.advance(5)
    start("two", handlers_of("two"))
    cluster.advance(5)
    make("after", spec={"size": 2})
    make("deleted")
    cluster.advance(1)
    assert indexed() == [{"before": [1], "after": [2], "deleted": [1]}] * 2
    cluster.patch("widgets", "before", {"spec": {"size": 3}})
    cluster.delete("widgets", "deleted")
    cluster.advance(1)
    assert indexed() == [{"before": [3], "after": [2]}] * 2
    # Each state once; the first one of the leader again at its takeover.
    assert (calls.count("one"), calls.count("two")) == (5, 4)
    first.stop()
    cluster.patch("widgets", "after", {"spec": {"size": 4}})
    cluster.advance(5)
    assert indexed()[1] == {"before": [3], "after": [4]}
