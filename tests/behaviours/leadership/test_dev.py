"""An operator with `--dev` next to the replicas of a leader election: it pauses the leader."""

import kopf
import pytest

from tests.support.crds import PEERINGS

pytestmark = pytest.mark.kopf_embedded_only

DEV_PRIORITY = 666
PEERING = {"apiVersion": "kopf.dev/v1", "kind": "ClusterKopfPeering", "metadata": {"name": "default"}}
HANDLERS = """
import kopf

@kopf.on.create('widgets')
def create(name, memo, **_):
    leadership = kopf.leadership()
    memo.calls.append(('create', name, leadership and leadership.term))
"""


@pytest.fixture
def start(run):
    """Starts an operator for which leader election is configured."""

    def start(identity, *, dev=False, explicit=False):
        settings = kopf.OperatorSettings()
        leadership = settings.leadership
        leadership.name, leadership.namespace, leadership.identity = "widgets-operator", "default", identity
        leadership.enabled, leadership.dev = True, explicit
        priority = DEV_PRIORITY if dev else 0
        return run(source=HANDLERS, settings=settings, standalone=False, identity=identity, priority=priority)

    return start


def test_a_dev_operator_pauses_the_leader_which_continues_in_the_same_term(cluster, start, make):
    """LEA-14."""
    cluster.freeze()
    cluster.apply(PEERINGS)
    cluster.create(PEERING)
    first = start("one")
    cluster.advance(5)
    second = start("two")
    make("first")
    cluster.advance(5)
    dev = start("dev", dev=True)
    cluster.advance(5)
    make("second")
    cluster.advance(60)
    assert dev.of("create") == [("second", None)]
    assert (first.of("create"), second.of("create")) == ([("first", 0)], [])
    dev.stop()
    make("third")
    cluster.advance(5)
    assert (first.of("create"), second.of("create")) == ([("first", 0), ("third", 0)], [])


def test_a_dev_operator_takes_part_in_the_election_on_request(cluster, start, make):
    cluster.freeze()
    dev = start("dev", dev=True, explicit=True)
    make("first")
    cluster.advance(5)
    assert dev.of("create") == [("first", 0)]


@pytest.mark.parametrize("has_crd", [False, True])
def test_a_dev_operator_does_not_start_if_it_could_not_pause_the_leader(cluster, start, has_crd):
    if has_crd:
        cluster.apply(PEERINGS)
    what = (
        'Create the ClusterKopfPeering "default"; or'
        if has_crd
        else 'Install the CRD clusterkopfpeerings.kopf.dev, and create the object "default"; or'
    )
    with pytest.raises(RuntimeError, match=what):
        dev = start("dev", dev=True)
        dev.settle()
        dev.stop()
