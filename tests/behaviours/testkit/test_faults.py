"""Injected faults: they are for the operator, not for what the test itself waits for."""

import threading

import kopf
import pytest

pytestmark = pytest.mark.kopf_embedded_only


def test_waiting_in_the_test_takes_no_fault(kopf_cluster, kopf_operator):
    seen = threading.Event()

    def handlers():
        @kopf.on.event("configmaps")
        def see(**_):
            seen.set()

    kopf_cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}})
    kopf_cluster.inject("code", 503, resource="configmaps", times=1, verb="list")
    with pytest.raises(TimeoutError):
        kopf_cluster.wait_for("configmaps", "none", timeout=0.3)
    kopf_operator(handlers)
    assert seen.wait(60)
    codes = [it.code for it in kopf_cluster.requests if it.path.endswith("/configmaps")]
    assert codes[:2] == [503, 200]
