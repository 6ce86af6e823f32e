"""The loss of the lease: what runs is cancelled, the replica stands by, and leads again without a restart.

In real time, with short durations: frozen time does not pass while a handler runs.
"""

import threading

import kopf
import pytest

pytestmark = pytest.mark.kopf_embedded_only

# On purpose: handlers fail when the lease is lost.
HANDLERS_RAISE = True
LEASE = ("leases", "widgets-operator")
HANDLERS = """
import asyncio
import kopf

@kopf.on.resume('widgets')
def resume(name, memo, **_):
    memo.calls.append(('resume', name, kopf.leadership().term))

@kopf.on.create('widgets')
async def create(name, memo, spec, patch, **_):
    term = kopf.leadership().term
    memo.calls.append(('create', name, term))
    if spec.get('waits') and term == 0:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            memo.calls.append(('cancelled', name, term))
            raise
    patch.status['term'] = term

@kopf.on.create('widgets', when=lambda spec, **_: spec.get('blocks'))
def block(name, memo, **_):
    memo.calls.append(('block', name, kopf.leadership().term))
    memo.gate.wait(60)

@kopf.daemon('widgets')
async def watch_over(name, memo, stopped, **_):
    term = kopf.leadership().term
    memo.calls.append(('daemon', name, term))
    await stopped.wait()
    memo.calls.append(('stopped', name, term, stopped.reason))

@kopf.daemon('widgets', when=lambda spec, **_: spec.get('deaf'))
async def deaf(name, memo, stopped, **_):
    try:
        await asyncio.sleep(3600)
    finally:
        memo.calls.append(('deaf', name, kopf.leadership().term))

@kopf.timer('widgets', interval=0.2)
def tick(name, memo, **_):
    memo.calls.append(('tick', name, kopf.leadership().term))

@kopf.on.event('widgets')
def event(name, memo, type, **_):
    memo.calls.append(('event', name, kopf.leadership().term, type))
"""


@pytest.fixture
def replica(run):
    """Starts a replica that leads."""

    def start(**options):
        settings = kopf.OperatorSettings()
        leadership = settings.leadership
        leadership.enabled, leadership.name, leadership.namespace = True, LEASE[1], "default"
        leadership.identity, leadership.lease_duration = "one", 4
        leadership.renew_deadline, leadership.retry_period, leadership.loss_grace = 2, 0.2, 1
        for name, value in options.pop("leadership", {}).items():
            setattr(leadership, name, value)
        return run(**{"source": HANDLERS, "settings": settings, **options})

    return start


@pytest.fixture
def lease(cluster):
    """Changes the record of the Lease."""

    def change(holder, term=None):
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 600}
        if term is not None:
            spec["leaseTransitions"] = term
        cluster.patch(*LEASE, {"spec": spec}, namespace="default")

    return change


def test_a_replica_that_has_lost_the_lease_stands_by_and_leads_again(cluster, replica, lease, make, handled):
    running = replica()
    make("done")
    handled("done")
    make("slow", spec={"waits": True, "deaf": True})
    running.until("create", 2)
    running.until("daemon", 2)
    running.until("tick", 2)
    lease("other", 1)
    running.until("cancelled")
    running.until("stopped", 2)
    running.until("deaf")
    assert [call[2] for call in running.of("stopped")] == [kopf.DaemonStoppingReason.OPERATOR_PAUSING] * 2
    # Nothing is called or written in the terms of others.
    before = cluster.patch("widgets", "done", {"spec": {"size": 2}})
    make("late")
    lease("third", 2)
    running.settle()
    counts = {handler: len(running.of(handler)) for handler in ("tick", "event", "create", "daemon")}
    assert cluster.get("widgets", "done")["metadata"] == before["metadata"]
    assert "status" not in cluster.get("widgets", "slow")
    assert {handler: len(running.of(handler)) for handler in counts} == counts
    lease("")
    running.until("create", 4)
    running.until("resume", 1)
    handled("slow")
    assert cluster.get("widgets", "slow")["status"] == {"term": 3}
    assert cluster.get("widgets", "done")["status"] == {"term": 0}
    assert sorted(running.of("create")) == [("done", 0), ("late", 3), ("slow", 0), ("slow", 3)]
    assert running.of("resume") == [("done", 3)]
    running.until("daemon", 5)
    assert sorted(call[0] for call in running.of("daemon") if call[1] == 3) == ["done", "late", "slow"]
    assert {call[1:] for call in running.of("event") if call[1] == 3} >= {(3, None)}
    running.stop()
    assert cluster.get(*LEASE, namespace="default")["spec"]["holderIdentity"] == ""


def test_a_replica_can_lose_the_lease_again_and_again(cluster, replica, lease, make, handled):
    running = replica()
    # The daemons of all objects are started again.
    for number, daemons in enumerate([1, 3, 6]):
        make(f"slow-{number}", spec={"waits": True})
        running.until("daemon", daemons)
        running.until("create", 1 if not number else number + 2)
        lease("other", 2 * number + 1)
        running.until("stopped", (number + 1) * (number + 2) // 2)
        lease("")
        running.until("daemon", daemons + number + 1)
    terms = [call[1] for call in running.of("daemon") if call[0] == "slow-0"]
    assert terms == [0, 2, 4, 6]


def test_a_replica_that_is_stopped_while_it_stands_by_again_releases_nothing(replica, lease, make, cluster):
    running = replica()
    make("slow", spec={"waits": True})
    running.until("create")
    lease("other", 1)
    running.until("cancelled")
    running.stop()
    assert cluster.get(*LEASE, namespace="default")["spec"]["holderIdentity"] == "other"


def test_a_replica_ends_if_a_thread_does_not_end(replica, lease, make):
    gate = threading.Event()
    running = replica(share={"gate": gate})
    make("one", spec={"blocks": True})
    make("two", spec={"waits": True})
    running.until("block")
    running.until("create")
    lease("other", 1)
    running.until("cancelled")
    text = r"Leadership was lost while block\(\) was running in a thread; exiting, as it cannot be stopped\."
    try:
        with pytest.raises(RuntimeError, match=text):
            running.stop()
    finally:
        gate.set()


def test_a_standby_without_warm_connects_only_when_it_leads(cluster, replica, lease, make, handled):
    running = replica(leadership={"warm": False})
    make("one")
    handled("one")
    lease("other", 1)
    running.until("stopped")
    make("two")
    lease("")
    handled("two")
    assert cluster.get("widgets", "two")["status"] == {"term": 2}
    watches = [it for it in cluster.requests if it.path.endswith("/widgets") and "watch" in it.query]
    assert watches


WEBHOOKS = """
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.admission.server = kopf.WebhookServer(addr="127.0.0.1")
    settings.admission.managed = "ours.example.com"

@kopf.on.validate('widgets')
def check(**_):
    pass

@kopf.daemon('widgets')
async def watch_over(name, memo, stopped, **_):
    memo.calls.append(('daemon', name))
    await stopped.wait()
    memo.calls.append(('stopped', name))
"""


def test_a_replica_that_leads_again_writes_its_webhooks_again(cluster, replica, lease, make, caplog):
    configuration = ("validatingwebhookconfigurations", "ours.example.com")
    running = replica(source=WEBHOOKS)
    cluster.wait_for(*configuration, lambda body: body.get("webhooks"))
    make("one")
    running.until("daemon")
    lease("other", 1)
    running.until("stopped")
    # As the other leader at its exit.
    cluster.patch(*configuration, {"webhooks": []})
    lease("")
    cluster.wait_for(*configuration, lambda body: body.get("webhooks"))
    running.until("daemon", 2)
    lease("other", 3)
    running.until("stopped", 2)
    running.stop()
    assert "the admission webhook" not in caplog.text, "a standby does not clean up"
    assert cluster.get(*configuration)["webhooks"]


FUNCTIONS = """
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.networking.error_backoffs = []
    settings.queueing.error_delays = [600]

@kopf.on.create('widgets')
def create(name, memo, patch, **_):
    memo.calls.append(('create', name, kopf.leadership().term))
    patch.fns.append(lambda body: body['spec'].update(size=5))

@kopf.on.event('widgets')
def event(name, memo, **_):
    memo.calls.append(('event', name, kopf.leadership().term))
"""


def test_functions_that_could_not_be_applied_in_a_term_are_dropped_at_its_end(
    cluster, replica, lease, make, handled
):
    running = replica(source=FUNCTIONS)
    # The first request writes the progress; the second one would write the result of the function.
    cluster.inject("code", 500, verb="patch", resource="widgets", after=1)
    make("one", spec={"size": 1})
    running.until("create")
    running.settle()
    codes = [it.code for it in cluster.requests if it.method == "PATCH" and it.path.endswith("/widgets/one")]
    assert codes == [200, 500]
    lease("other", 1)
    cluster.clear_faults()
    running.settle()
    # The other leader has handled the object meanwhile.
    cluster.patch("widgets", "one", {"spec": {"size": 2}})
    lease("")
    running.until("event", len(running.of("event")) + 1)
    running.settle()
    assert running.of("event")[-1] == ("one", 2)
    assert running.of("create") == [("one", 0)]
    assert cluster.get("widgets", "one")["spec"] == {"size": 2}
