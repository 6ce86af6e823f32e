"""Peering: priorities, pausing, and the freeze command."""

import datetime
import os
import subprocess

import pytest

from tests.support import cluster as kube
from tests.support.crds import crd

pytestmark = pytest.mark.contract("api 8")

HANDLERS = """
from calls import called


@kopf.on.startup()
def hurry(settings, **_):
    settings.peering.lifetime = 10


@kopf.on.create('parcels')
def create(name, **_):
    called('create', name=name)


@kopf.on.update('parcels')
def update(name, **_):
    called('update', name=name)
"""
STREAM = r"the watch-stream for parcels\.v1\.testing\.kopf\.dev in '\S+'"


@pytest.fixture
def peerings(cluster):
    """Not for the session: other tests remove this CRD from the control plane."""
    body = crd("kopfpeerings", "KopfPeering", group="kopf.dev", subresource=False)
    return cluster.create_crd(body)


@pytest.fixture
def peering(cluster, peerings, namespace):
    body = {"apiVersion": "kopf.dev/v1", "kind": "KopfPeering", "metadata": {"name": "crew"}}
    cluster.create(peerings, namespace, body)
    return kube_object(cluster, peerings, namespace)


def kube_object(cluster, resource, namespace):
    def wait(condition):
        found = cluster.wait(resource, namespace, "crew", lambda body: body and condition(peers(body)))
        return peers(found)

    return wait


def peers(body):
    return body.get("status") or {}


def command(operator, *args, code=0):
    env = {key: value for key, value in os.environ.items() if not key.startswith(("KOPF_", "KUBE"))}
    env |= {"KUBECONFIG": str(operator.kubeconfig), "HOME": str(operator.folder)}
    words = [operator.python, "-m", "kopf", *args]
    done = subprocess.run(words, capture_output=True, text=True, env=env, cwd=operator.folder, timeout=30)
    assert done.returncode == code, done.stderr
    return done.stderr


def test_the_weaker_one_pauses_and_goes_on_when_the_stronger_one_is_gone(operator, shelf, peering):
    low = operator(HANDLERS, "--peering", "crew", "--priority", "1", environment={"POD_ID": "low"})
    shelf.create("p1")
    low.wait_for_call("create")
    [(identity, record)] = peering(lambda found: "low" in found).items()
    assert (identity, record["priority"], record["lifetime"]) == ("low", 1, 10)
    assert datetime.datetime.fromisoformat(record["lastseen"]).utcoffset() == datetime.timedelta(0)
    high = operator(HANDLERS, "--peering", "crew", "--priority", "2", environment={"POD_ID": "high"})
    low.wait_for_log(r"\[INFO *\] Pausing operations in favour of \[<Peer high: priority=2, lifetime=10,")
    low.wait_for_log(rf"\[DEBUG *\] Pausing {STREAM} \(blockers: crew@{operator.namespace}\)\.")
    shelf.create("p2")
    high.wait_for_call("create")
    shelf.wait_until_handled("p2")
    assert high.stop() == 0
    low.wait_for_log(r"\[INFO *\] Resuming operations after the pause\.")
    low.wait_for_log(rf"\[DEBUG *\] Resuming {STREAM}\.")
    shelf.patch("p2", {"spec": {"x": 1}})
    low.wait_for_call("update")
    assert [call.details["name"] for call in low.calls] == ["p1", "p2"]
    assert [call.details["name"] for call in high.calls] == ["p2"]
    assert low.stop() == 0
    assert peering(lambda found: True) == {}


def test_a_killed_peer_is_outlived_and_buried(operator, shelf, peering):
    high = operator(HANDLERS, "--peering", "crew", "--priority", "2", environment={"POD_ID": "high"})
    peering(lambda found: "high" in found)
    low = operator(HANDLERS, "--peering", "crew", "--priority", "1", environment={"POD_ID": "low"})
    low.wait_for_log("Pausing operations in favour of")
    high.kill()
    shelf.create("p1")
    low.wait_for_log("Resuming operations after the pause", timeout=30)
    low.wait_for_call("create")
    assert set(peering(lambda found: "high" not in found)) == {"low"}


@pytest.mark.contract("api 8.3")
def test_equals_pause_both(operator, peering):
    one = operator(HANDLERS, "--peering", "crew", environment={"POD_ID": "one"})
    peering(lambda found: "one" in found)
    two = operator(HANDLERS, "--peering", "crew", environment={"POD_ID": "two"})
    for run, other in [(one, "two"), (two, "one")]:
        run.wait_for_log(
            rf"\[WARNING *\] Possibly conflicting operators with the same priority: \[<Peer {other}:"
        )
        run.wait_for_log(rf"\[WARNING *\] Pausing all operators, including self: \[<Peer {other}:")


@pytest.mark.contract("api 5.1")
def test_people_freeze_and_resume_the_operators(operator, shelf, peering):
    run = operator(HANDLERS, "--peering", "crew", "--priority", "1")
    peering(lambda found: len(found) == 1)
    where = ("-n", operator.namespace, "--peering", "crew")
    command(operator, "freeze", *where, "--priority", "100", "--lifetime", "600", "--id", "me", "-m", "why")
    run.wait_for_log(r"Pausing operations in favour of \[<Peer me: priority=100, lifetime=600,")
    shelf.create("p1")
    command(operator, "resume", *where, "--id", "me")
    run.wait_for_call("create")
    assert "me" not in peering(lambda found: True)


def test_freezing_without_peers_is_an_error(operator, peerings, cluster):
    nowhere = command(
        operator, "freeze", "-n", operator.namespace, "--peering", "no-such", "--lifetime", "9", code=1
    )
    assert "There is no peering object" in nowhere
    command(operator, "resume", "-n", operator.namespace, "--peering", "no-such")
    no_crd = command(operator, "freeze", "-A", "--peering", "crew", "--lifetime", "9", code=1)
    assert "Cannot find the peering resource for [clusterkopfpeerings.v1.kopf.dev" in no_crd


def test_mandatory_peering_waits_for_the_object(operator, shelf, cluster, peerings):
    run = operator(HANDLERS, "--peering", "crew")
    run.wait_for_log(rf"Starting {STREAM} \(paused\)\.")
    shelf.create("p1")
    run.wait_for_log(r"Keep-alive in 'crew' in '\S+': not found\.")
    assert run.calls == []
    body = {"apiVersion": "kopf.dev/v1", "kind": "KopfPeering", "metadata": {"name": "crew"}}
    cluster.create(peerings, operator.namespace, body)
    run.wait_for_call("create")
    assert len(kube_object(cluster, peerings, operator.namespace)(len)) == 1


def test_standalone_ignores_its_peers(operator, shelf, cluster, peerings, peering):
    record = {"priority": 999, "lifetime": 999, "lastseen": datetime.datetime.now(datetime.UTC).isoformat()}
    cluster.patch(peerings, operator.namespace, "crew", {"status": {"other": record}})
    paused = operator(HANDLERS, "--peering", "crew")
    paused.wait_for_log("Pausing operations in favour of")
    run = operator(HANDLERS, "--standalone")
    shelf.create("p1")
    run.wait_for_call("create")
    assert paused.calls == []


@pytest.mark.contract("engine 1.3")
def test_peering_begins_when_its_crd_is_created_later(operator, shelf, cluster):
    body = crd("kopfpeerings", "KopfPeering", group="zalando.org", subresource=False)
    run = operator(HANDLERS)
    shelf.create("p1")
    run.wait_for_call("create")
    late = cluster.create_crd(body)
    try:
        record = {"priority": 999}
        body = {"apiVersion": "zalando.org/v1", "kind": "KopfPeering", "metadata": {"name": "default"}}
        cluster.create(late, operator.namespace, {**body, "status": {"other": record}})
        run.wait_for_log(r"Pausing operations in favour of \[<Peer other: priority=999, lifetime=60,")
        run.wait_for_log(rf"Pausing {STREAM} \(blockers: default@\S+ \(zalando\.org\)\)\.")
    finally:
        cluster.delete(kube.CRDS, None, "kopfpeerings.zalando.org")
    shelf.create("p2")
    run.wait_for_call("create", count=2)
