"""Memory of caches, and reading under load. Section 2.6; scenarios 2.7.7 and 2.7.9, with fewer objects."""

import asyncio
import json
import statistics
import threading

import kopf
import pytest
from kopf.testing import Operator

from .conftest import wait_ready, wait_until


def pod(number):
    containers = [
        {
            "name": f"c{item}",
            "image": f"registry.example.com/team/image-{item}:1.{number}",
            "env": [{"name": f"VARIABLE_{index}", "value": f"value of {index}"} for index in range(20)],
        }
        for item in range(3)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number}", "labels": {"app": "x"}},
        "spec": {"containers": containers},
    }


@pytest.mark.kopf_embedded_only
def test_2_7_7_unread_objects_are_compressed(cluster, caplog):
    path = "/api/v1/namespaces/default/pods"
    cluster.call_all([("POST", path, pod(number)) for number in range(500)])
    settings = kopf.OperatorSettings()
    settings.caching.rest = 0.5
    settings.caching.warn_above = 500_000
    caches = []
    with Operator(cluster, lambda: caches.append(kopf.cache("pods")), settings=settings):
        (pods,) = caches
        wait_ready(pods)
        total = sum(len(json.dumps(dict(body), separators=(",", ":"))) for body in pods)
        assert "managedFields" not in pods.get("pod-0", "default")["metadata"]
        wait_until(lambda: pods.memory_size <= total / 2 + 250 * 500)
        assert pods.get("pod-7", "default").metadata.name == "pod-7"
        wait_until(lambda: any("The caches take" in record.getMessage() for record in caplog.records))
    # There is another one at each doubling.
    warning, *_ = [
        record.getMessage() for record in caplog.records if "The caches take" in record.getMessage()
    ]
    assert '"pods" has' in warning and "spec" in warning


@pytest.mark.kopf_embedded_only
def test_2_1_metadata_only_and_drop(cluster):
    cluster.call_all([("POST", "/api/v1/namespaces/default/pods", pod(1))])
    caches = []

    def declare():
        caches.append(kopf.cache("pods", id="small", metadata_only=True))
        caches.append(
            kopf.cache("pods", id="dropping", drop=["spec.containers", ("metadata", "labels", "app")])
        )

    with Operator(cluster, declare):
        small, dropping = caches
        wait_ready(small, dropping)
        body = small.get("pod-1", "default")
        assert set(body) == {"apiVersion", "kind", "metadata"} and body["kind"] == "Pod"
        rest = dropping.get("pod-1", "default")
        assert "containers" not in rest["spec"] and not rest["metadata"]["labels"]
        assert "managedFields" in rest["metadata"]


@pytest.mark.kopf_embedded_only
def test_2_7_9_threads_and_the_loop_read_while_objects_change(cluster, create, make):
    for number in range(20):
        create(f"cm-{number}", {"x": "0"}, labels={"ours": "y"})
    caches, failures, delays, writes = [], [], [], []
    is_over = threading.Event()

    def read_all(newest):
        """Read all objects: none is older than before."""
        for body in caches[0].select(namespace="default"):
            name, x = body.metadata.name, int(body["data"]["x"])
            assert x >= newest.get(name, 0)
            newest[name] = x
        for key in caches[0].keys("x"):
            caches[0].select(x=key)

    def declare():
        caches.append(kopf.cache("configmaps", labels="ours", by={"x": "data.x"}))

        @kopf.daemon("widgets")
        async def read_in_the_loop(api, **_):
            newest, loop = {}, asyncio.get_running_loop()
            try:
                while not is_over.is_set():
                    read_all(newest)
                    y = str(len(writes))
                    await api.patch("configmaps", "cm-0", {"data": {"y": y}})
                    assert caches[0].get("cm-0", "default")["data"].get("y", y) == y
                    writes.append(y)
                    planned = loop.time() + 0.005
                    await asyncio.sleep(0.005)
                    delays.append(loop.time() - planned)
            except Exception as e:
                failures.append(e)

    with Operator(cluster, declare) as operator:
        (maps,) = caches
        wait_ready(maps)
        make("reader")
        wait_until(lambda: writes)

        def read():
            newest = {}
            try:
                while not is_over.is_set():
                    read_all(newest)
            except Exception as e:
                failures.append(e)

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        try:
            for value in range(1, 100):
                path = "/api/v1/namespaces/default/configmaps"
                cluster.call_all(
                    [
                        (
                            "PUT",
                            f"{path}/cm-{number}",
                            {
                                "apiVersion": "v1",
                                "kind": "ConfigMap",
                                "data": {"x": str(value)},
                                "metadata": {"name": f"cm-{number}", "labels": {"ours": "y"}},
                            },
                        )
                        for number in range(20)
                    ]
                )
            wait_until(lambda: maps.keys("x") == ["99"])
        finally:
            is_over.set()
            for reader in readers:
                reader.join()
        cluster.delete("widgets", "reader")
        operator.wait_until_idle()
    assert failures == []
    assert len(writes) > 10
    assert statistics.median(delays) < 0.25, "the event loop is late"
