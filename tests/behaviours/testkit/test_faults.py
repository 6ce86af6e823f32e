"""Injected faults: they are for the operator, not for what the test itself waits for."""

import kopf
import pytest

pytestmark = pytest.mark.kopf_embedded_only


def handlers():
    @kopf.on.event("configmaps")
    def see(**_):
        pass


def test_waiting_in_the_test_takes_no_fault(kopf_cluster, kopf_operator):
    kopf_cluster.inject("code", 503, resource="configmaps", times=1)
    with pytest.raises(TimeoutError):
        kopf_cluster.wait_for("configmaps", "none", timeout=0.3)
    kopf_operator(handlers).wait_until_idle()
    codes = [it.code for it in kopf_cluster.requests if it.path.endswith("/configmaps")]
    assert codes[:2] == [503, 200]
