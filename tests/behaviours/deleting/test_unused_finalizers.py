"""The finalizer of an object whose last daemon has ended: it is not needed any longer."""

import threading

import kopf
import pytest
from kopf.testing import Cluster, Operator

pytestmark = pytest.mark.kopf_embedded_only
OBJECT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}


def declare(compat, seen, release):
    def handlers():
        @kopf.on.startup()
        def configure(settings, **_):
            settings.process.compat = compat

        @kopf.on.event("configmaps")
        def event(meta, **_):
            if meta.get("finalizers"):
                seen.set()

        @kopf.daemon("configmaps")
        def daemon(**_):
            assert release.wait(20)

    return handlers


def finalizers(cluster):
    return cluster.get("configmaps", "one")["metadata"].get("finalizers", [])


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("compat", "left"), [(None, 0), ("1.45", 1)])
def test_it_is_removed_at_once_or_at_the_next_event_as_in_kopf(compat, left):
    seen, release = threading.Event(), threading.Event()
    with Cluster() as cluster, Operator(cluster, declare(compat, seen, release)) as operator:
        cluster.create(OBJECT)
        # The event of the added finalizer comes before the end of the daemon.
        assert seen.wait(20)
        release.set()
        operator.wait_until_idle()
        assert len(finalizers(cluster)) == left
        cluster.patch("configmaps", "one", {"data": {"x": "1"}})
        operator.wait_until_idle()
        assert finalizers(cluster) == []
