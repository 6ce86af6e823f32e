"""The clusters of the tests of leadership."""

import contextlib
from collections.abc import Iterator

import pytest
from kopf.testing import Cluster, ClusterUnavailableError

from tests.faults import audited
from tests.faults.replicas import LEASE


@pytest.fixture(scope="session")
def audited_plane() -> Iterator[object]:
    """A control plane with an audit log."""

    with contextlib.ExitStack() as stack:
        try:
            plane = stack.enter_context(audited.running())
        except ClusterUnavailableError as error:
            pytest.skip(str(error))
        yield plane


@pytest.fixture(params=["embedded", "real"])
def recorded_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster with a request log: the embedded API server, and a real control plane."""

    if request.param == "embedded":
        with Cluster() as cluster:
            yield cluster
        return
    with audited.AuditedCluster(request.getfixturevalue("audited_plane")) as cluster:
        yield cluster
        # The next test may need it.
        cluster.disown_crds()
        if cluster.find("leases", LEASE) is not None:
            cluster.delete("leases", LEASE)
