"""Leader election between operators on the embedded server, in virtual time."""

import dataclasses
import datetime

import kopf
import pytest

pytestmark = pytest.mark.kopf_embedded_only

# On purpose: handlers fail when the lease is lost.
HANDLERS_RAISE = True
LEASE = ("leases", "widgets-operator")
HANDLERS = """
import asyncio
import kopf

@kopf.on.create('widgets')
async def create(name, memo, spec, **_):
    leadership = kopf.leadership()
    memo.calls.append(('create', name, leadership.term, leadership.identity))
    if spec.get('waits'):
        try:
            await asyncio.sleep(3600)
        finally:
            try:
                leadership.check()
            except kopf.LeadershipLost as e:
                memo.calls.append(('cancelled', str(e)))

@kopf.on.update('widgets', field='spec.size')
def update(name, memo, **_):
    memo.calls.append(('update', name, kopf.leadership().term))

@kopf.index('widgets')
def sizes(name, spec, memo, **_):
    leadership = kopf.leadership()
    memo.calls.append(('index', name, leadership and leadership.term))
    return {name: spec.get('size')}
"""


@pytest.fixture
def replica(run, cluster):
    """Starts a replica with this identity."""

    def start(identity, **options):
        settings = kopf.OperatorSettings()
        settings.leadership.enabled = True
        settings.leadership.name = "widgets-operator"
        settings.leadership.namespace = "default"
        settings.leadership.identity = identity
        # The request log shows it as the user, and faults can be limited to it.
        settings.client.headers = {"Impersonate-User": identity, "Impersonate-Group": "system:masters"}
        for name, value in options.items():
            setattr(settings.leadership, name, value)
        return run(source=HANDLERS, settings=settings)

    return start


@pytest.fixture
def lease(cluster):
    """Reads the record of the Lease."""

    def read():
        return cluster.get(*LEASE, namespace="default")["spec"]

    return read


@pytest.mark.parametrize("hours", [-1, 0, 1], ids=["behind", "equal", "ahead"])
def test_a_standby_calls_no_handlers_until_the_lease_of_a_crashed_leader_has_expired(
    cluster, replica, lease, make, hours
):
    """LEA-3, LEA-19, and LEA-8: the clock of the leader was an hour behind or ahead."""
    cluster.freeze()
    renewed = (cluster.now + datetime.timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "crashed", "leaseDurationSeconds": 15, "leaseTransitions": 4}
    spec["renewTime"] = spec["acquireTime"] = renewed
    metadata = {"name": LEASE[1], "namespace": "default"}
    kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    cluster.create({**kind, "metadata": metadata, "spec": spec})
    running = replica("one")
    cluster.advance(1)
    make("first")
    cluster.advance(13)
    assert running.of("create") == []
    assert running.of("index") == [("first", None)]
    cluster.advance(4)
    assert running.of("create") == [("first", 5, "one")]
    assert (lease()["holderIdentity"], lease()["leaseTransitions"]) == ("one", 5)
    cluster.advance(300)
    assert lease()["leaseTransitions"] == 5


def test_the_next_replica_continues_after_a_release(cluster, replica, lease, make):
    """LEA-2, with one hand-over, and LEA-19."""
    cluster.freeze()
    first = replica("one")
    cluster.advance(5)
    second = replica("two")
    make("first")
    cluster.advance(5)
    assert first.of("create") == [("first", 0, "one")]
    first.stop()
    assert lease()["holderIdentity"] == ""
    make("second")
    cluster.advance(0.75)
    assert second.of("create") == [("second", 1, "two")]
    assert second.of("index")[-1][1] == 1


def test_another_replica_continues_when_only_the_leader_is_disconnected(cluster, replica, lease, make):
    """LEA-6, in virtual time."""
    cluster.freeze()
    first = replica("one")
    cluster.advance(5)
    second = replica("two")
    make("first")
    cluster.advance(5)
    assert first.of("create") == [("first", 0, "one")]
    renewed = datetime.datetime.fromisoformat(lease()["renewTime"])
    cluster.inject("reset", client="one")
    cluster.clear_requests()
    cluster.advance(10)
    # Its watch is still open, but its term has ended.
    make("second")
    while not second.of("create"):
        cluster.advance(0.5)
        assert (cluster.now - renewed).total_seconds() < 20
    assert (cluster.now - renewed).total_seconds() >= 15
    assert (first.of("create"), second.of("create")) == ([("first", 0, "one")], [("second", 1, "two")])
    written = {it.user for it in cluster.requests if it.method != "GET" and 200 <= it.code < 300}
    assert written == {"two"}
    cluster.clear_faults()
    cluster.advance(60)
    assert lease()["holderIdentity"] == "two"
    assert first.of("create") == [("first", 0, "one")]


def test_a_leader_whose_lease_was_taken_cancels_its_handlers_and_ends(cluster, replica, lease, make):
    running = replica("one", on_lost="exit")
    make("first", spec={"waits": True})
    running.until("create")
    taken = {"holderIdentity": "other", "leaseTransitions": 1}
    cluster.patch(*LEASE, {"spec": taken}, namespace="default")
    running.until("cancelled")
    assert running.of("cancelled") == ["The term 0 by the lease default/widgets-operator has ended."]
    with pytest.raises(RuntimeError, match="was lost: this replica ends, and another one continues"):
        running.stop()
    assert lease()["holderIdentity"] == "other"
    assert "status" not in cluster.get("widgets", "first")


def test_without_a_namespace_of_the_lease_an_operator_does_not_start(cluster, kopf_operator, monkeypatch):
    monkeypatch.delenv("POD_NAMESPACE", raising=False)

    def handlers():
        @kopf.on.login()
        def login(**_):
            return dataclasses.replace(cluster.connection, default_namespace=None)

    settings = kopf.OperatorSettings()
    settings.leadership.enabled, settings.leadership.name = True, "widgets-operator"
    operator = kopf_operator(handlers, settings=settings)
    with pytest.raises(RuntimeError, match=r"Set --lease-namespace=NAME\."):
        operator.wait_until_idle()
