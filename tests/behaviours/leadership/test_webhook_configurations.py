"""The webhook configuration at a hand-over, and at the exit of the last replica."""

import logging
import threading
import time

import kopf
import pytest

pytestmark = pytest.mark.kopf_embedded_only

LIMIT = 120.0
CONFIGURATION = ("validatingwebhookconfigurations", "ours.example.com")


def handlers():
    @kopf.on.validate("configmaps")
    def check(**_):
        pass


@pytest.fixture
def replica(kopf_operator):
    """Starts a replica with this identity."""

    def start(identity):
        settings = kopf.OperatorSettings()
        settings.leadership.enabled = True
        settings.leadership.name = "ours"
        settings.leadership.namespace = "default"
        settings.leadership.identity = identity
        settings.admission.server = kopf.WebhookServer(addr="127.0.0.1")
        settings.admission.managed = CONFIGURATION[1]
        return kopf_operator(handlers, settings=settings)

    return start


def wait_until(condition):
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.02)


def test_a_hand_over_keeps_the_webhooks_and_only_the_last_replica_removes_them(kopf_cluster, replica, caplog):
    def written():
        """The numbers of webhooks in the configurations that the replicas have written so far."""
        patches = [
            request
            for request in kopf_cluster.requests
            if request.method == "PATCH" and request.path.endswith("/".join(CONFIGURATION))
        ]
        return [len(patch.json["webhooks"]) for patch in patches]

    caplog.set_level(logging.INFO)
    first = replica("one")
    wait_until(lambda: written() == [1])
    second = replica("two")
    wait_until(lambda: "Standing by for the lease default/ours as two." in caplog.text)
    first.stop()
    wait_until(lambda: len(written()) > 1)
    assert kopf_cluster.get("leases", "ours", namespace="default")["spec"]["holderIdentity"] == "two"
    second.stop()
    assert written() == [1, 1, 0]
    assert not kopf_cluster.get(*CONFIGURATION).get("webhooks")
    assert kopf_cluster.get("leases", "ours", namespace="default")["spec"]["holderIdentity"] == ""
