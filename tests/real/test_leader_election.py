"""Leader election: one of several replicas handles the objects, and another one continues when it ends.

The durations are shorter than the defaults, so that crashes are noticed within seconds.
"""

import signal
import time

import pytest

from tests.support import cluster as kube

LEASES = kube.Resource("coordination.k8s.io", "v1", "leases")
OPTIONS = ("--leader-elect", "--lease=parcels-operator")
LEASE_DURATION = 6
MARGIN = 2  # a retry period, and the start of the work
CODE = """
from calls import called
import asyncio
import kopf

@kopf.on.startup()
def hurry(settings, **_):
    settings.leadership.lease_duration = 6
    settings.leadership.renew_deadline = 4
    settings.leadership.retry_period = 1
    settings.leadership.loss_grace = 1

@kopf.on.create('parcels')
async def create(name, spec, patch, **_):
    called('create', name=name)
    await asyncio.sleep(spec.get('seconds', 0))
    patch.status['created'] = True
    called('created', name=name)

@kopf.on.resume('parcels')
def resume(name, **_):
    called('resume', name=name)

@kopf.on.update('parcels')
def update(name, **_):
    called('update', name=name)

@kopf.index('parcels')
def sizes(name, spec, **_):
    called('index', name=name)
    return {name: spec.get('size')}
"""


@pytest.fixture
def replica(operator, namespace):
    """Start replicas; each stands by, or leads."""
    options = (*OPTIONS, f"--lease-namespace={namespace}", "--standalone", "--verbose")

    def start(code=CODE):
        started = operator(code, options=options)
        started.wait_for_log("Standing by for the lease")
        return started

    return start


@pytest.fixture
def pair(replica):
    """The leader and a replica that stands by with filled indices."""
    leader = replica()
    leader.wait_for_log("Became the leader")
    standby = replica(None)
    return leader, standby


def handled(run):
    return [call for call in run.calls if call.handler != "index"]


def test_a_standby_watches_but_handles_nothing_and_continues_within_a_second_after_the_exit(pair, shelf):
    """LEA-2, with one hand-over."""
    leader, standby = pair
    shelf.create("p1", {"size": 1})
    shelf.wait_until_handled("p1")
    assert [call.handler for call in leader.calls if call.handler == "create"] == ["create"]
    shelf.create("p2", {"seconds": 1})
    leader.wait_for_call("create", count=2)
    assert handled(standby) == []
    leader.process.send_signal(signal.SIGTERM)
    leader.wait_for_call("created", count=2)
    assert leader.wait_for_exit() == 0
    released = time.monotonic()
    shelf.create("p3")
    standby.wait_for_call("create")
    assert time.monotonic() - released < 1 + MARGIN, "about the interval in which the lease is read"
    shelf.wait_until_handled("p3")
    standby.wait_for_call("resume", count=2)
    created = [call.details["name"] for call in standby.called("create")]
    assert created == ["p3"], "the leader has finished the others"


def test_another_replica_continues_after_a_kill_when_the_lease_has_expired(pair, shelf):
    """LEA-3."""
    leader, standby = pair
    shelf.create("p1", {"seconds": 60})
    leader.wait_for_call("create")
    leader.kill()
    killed = time.monotonic()
    standby.wait_for_call("create", timeout=LEASE_DURATION + MARGIN)
    assert time.monotonic() - killed > LEASE_DURATION - MARGIN
    assert standby.stop() == 0


def test_a_leader_that_was_stopped_for_longer_than_its_lease_writes_nothing_and_stands_by(
    pair, shelf, cluster, namespace
):
    """LEA-4, in a handler."""
    leader, standby = pair
    shelf.create("p1", {"seconds": 3})
    leader.wait_for_call("create")
    leader.process.send_signal(signal.SIGSTOP)
    standby.wait_for_call("created", timeout=LEASE_DURATION + MARGIN + 20)
    before = shelf.wait_until_handled("p1")
    leader.process.send_signal(signal.SIGCONT)
    leader.wait_for_log(f"Standing by for the lease {namespace}/parcels-operator again.")
    after = shelf.get("p1")
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    lease = cluster.get(LEASES, namespace, "parcels-operator")
    assert lease["spec"]["leaseTransitions"] == 1
    shelf.patch("p1", {"spec": {"size": 2}})
    standby.wait_for_call("update")
    # The function was running: it may have gone on before it was cancelled. No other one was called.
    assert [call.handler for call in handled(leader) if call.handler != "created"] == ["create"]
    assert standby.stop() == 0
    leader.wait_for_call("resume")


def test_without_the_name_of_a_lease_the_operator_does_not_start(operator):
    run = operator(CODE, options=("--leader-elect",))
    assert run.wait_for_exit() == 2
    assert "Leader election needs a lease name that all replicas share" in run.log
