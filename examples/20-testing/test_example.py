"""Tests of the operator. Run them with `pytest examples/20-testing`."""

import datetime
import pathlib

import pytest

HERE = pathlib.Path(__file__).parent


@pytest.fixture
def cluster(kopf_cluster, kopf_operator):
    kopf_cluster.apply(HERE / "crd.yaml")
    kopf_operator(HERE / "example.py")
    return kopf_cluster


def test_orders_are_confirmed(cluster):
    cluster.apply(HERE / "obj.yaml")
    cluster.wait_for("orders", "friday", {"status": {"check": {"confirmed": 6}}})


@pytest.mark.kopf_embedded_only
def test_orders_wait_for_the_wine(cluster):
    order = {
        "apiVersion": "hotel.examples.kopf.dev/v1",
        "kind": "Order",
        "metadata": {"name": "sunday"},
        "spec": {"bottles": 2, "outOfStock": True},
    }
    cluster.freeze()
    cluster.create(order)
    cluster.advance(datetime.timedelta(days=3))
    assert cluster.get("orders", "sunday")["status"] == {"reminders": 1}
    cluster.patch("orders", "sunday", {"spec": {"outOfStock": False}})
    cluster.advance(datetime.timedelta(days=2))
    assert "check" not in cluster.get("orders", "sunday")["status"]
    cluster.advance(datetime.timedelta(days=1))
    done = cluster.get("orders", "sunday")["status"]
    assert done["check"] == {"confirmed": 2, "attempts": 3}
    cluster.advance(datetime.timedelta(days=30))
    assert cluster.get("orders", "sunday")["status"] == done, "no reminders after the confirmation"


def test_too_large_orders_are_rejected(kopf_cluster, kopf_operator, caplog):
    kopf_cluster.apply(HERE / "crd.yaml")
    kopf_cluster.apply(HERE / "obj.yaml")
    kopf_cluster.patch("orders", "friday", {"spec": {"bottles": 100}})
    kopf_operator(HERE / "example.py").wait_until_idle()
    assert "The cellar is not that big." in caplog.text
    assert "status" not in kopf_cluster.get("orders", "friday")


def test_cancelled_orders_are_gone(cluster):
    cluster.apply(HERE / "obj.yaml")
    cluster.wait_for("orders", "friday", {"status": {"check": {"confirmed": 6}}})
    cluster.delete("orders", "friday")
    cluster.wait_until_gone("orders", "friday")


@pytest.mark.kopf_embedded_only
def test_server_errors_are_retried(cluster):
    cluster.inject("code", 503, verb="patch", resource="orders", times=1)
    cluster.apply(HERE / "obj.yaml")
    cluster.wait_for("orders", "friday", {"status": {"check": {"confirmed": 6}}})
    assert [it.code for it in cluster.requests if it.method == "PATCH"].count(503) == 1
