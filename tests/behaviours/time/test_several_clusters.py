"""Virtual time of a test with several clusters: it never goes back for those that continue to run."""

import datetime

import pytest
from kopf.testing import Cluster, Operator

pytestmark = pytest.mark.kopf_embedded_only
HOUR = datetime.timedelta(hours=1)


def test_time_continues_for_the_operators_of_other_clusters():
    with Cluster() as other, Operator(other):
        with Cluster() as cluster:
            cluster.advance("1 day")
            cluster.freeze()
            before = cluster.now
        assert other.now >= before
        assert not other.clock.clock.frozen
        other.wait_until_idle()
    assert_real_time()


def test_time_stays_frozen_if_another_cluster_has_frozen_it():
    with Cluster() as other:
        other.freeze()
        before = other.now
        with Cluster() as cluster, Operator(cluster):
            cluster.advance("1 day")
        assert other.clock.clock.frozen
        assert other.now - before == 24 * HOUR
    assert_real_time()


def assert_real_time():
    with Cluster() as cluster:
        assert abs(cluster.now - datetime.datetime.now(datetime.UTC)) < HOUR
