"""The work of the embedded server itself: waits include it, and its delays follow virtual time."""

import concurrent.futures
import threading

import kopf
import pytest
from kopf.testing import Operator

pytestmark = pytest.mark.kopf_embedded_only
CRD = "widgets.behaviours.example.com"
WEBHOOKS = "checks.example.com"


def config(name, **meta):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **meta}}


def checking(check, **options):
    """Handlers that check configmaps by the function."""

    def handlers():
        @kopf.on.startup()
        def configure(settings, **_):
            settings.admission.server = kopf.WebhookServer(addr="127.0.0.1", host="127.0.0.1")
            settings.admission.managed = WEBHOOKS

        kopf.on.validate("configmaps", **options)(check)

    return handlers


def wait_for_webhooks(cluster):
    cluster.wait_for("validatingwebhookconfigurations", WEBHOOKS, lambda it: it and it.get("webhooks"))


def test_a_crd_is_removed_with_the_last_of_its_objects(cluster, make):
    deleted = []

    def handlers():
        @kopf.on.delete("widgets")
        def part(name, **_):
            deleted.append(name)

    with Operator(cluster, handlers):
        for name in ("one", "two"):
            make(name)
        cluster.freeze()
        cluster.wait_until_idle()
        cluster.delete("crds", CRD)
        cluster.advance(10)
        assert sorted(deleted) == ["one", "two"]
        assert cluster.find("crds", CRD) is None


def test_a_rejected_collection_is_repeated_in_virtual_time(cluster):
    reviewed = []

    def check(name, **_):
        reviewed.append(name)
        if reviewed == ["owner", "owned"]:
            raise kopf.AdmissionError("Not yet.")

    with Operator(cluster, checking(check, operations=["DELETE"])):
        wait_for_webhooks(cluster)
        cluster.freeze()
        uid = cluster.create(config("owner"))["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
        cluster.create(config("owned", ownerReferences=[owner]))
        cluster.delete("configmaps", "owner")
        cluster.wait_until_idle()
        assert reviewed == ["owner", "owned"]
        assert cluster.find("configmaps", "owned") is not None
        cluster.advance(2)
        assert reviewed == ["owner", "owned", "owned"]
        assert cluster.find("configmaps", "owned") is None


def test_a_review_is_awaited(cluster):
    started, gate = threading.Event(), threading.Event()

    def check(**_):
        started.set()
        gate.wait(60)

    with (
        Operator(cluster, checking(check)) as operator,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        wait_for_webhooks(cluster)
        created = pool.submit(cluster.create, config("one"))
        assert started.wait(60)
        with pytest.raises(TimeoutError, match=r"Busy: .*Admission review of default/one"):
            operator.wait_until_idle(timeout=0.1)
        gate.set()
        created.result(60)
        operator.wait_until_idle()
