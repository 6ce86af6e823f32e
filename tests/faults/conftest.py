"""Makes the modules of this folder importable for its tests only; the clusters of the tests of leadership."""

import contextlib
import pathlib
import sys
from collections.abc import Iterator

import pytest
from kopf.testing import Cluster, ClusterUnavailableError

sys.path.insert(0, str(pathlib.Path(__file__).parent))


@pytest.fixture(scope="session")
def audited_plane() -> Iterator[object]:
    """A control plane with an audit log."""
    import audited

    with contextlib.ExitStack() as stack:
        try:
            plane = stack.enter_context(audited.running())
        except ClusterUnavailableError as error:
            pytest.skip(str(error))
        yield plane


@pytest.fixture(params=["embedded", "real"])
def recorded_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster with a request log: the embedded API server, and a real control plane."""
    import audited
    from replicas import LEASE

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
