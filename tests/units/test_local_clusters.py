"""The detection of the cluster while the engine starts."""

from __future__ import annotations

import asyncio

import pytest
from kopf._kits.webhooks import local_clusters


class Engine:
    """An engine that is connected after some attempts."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def server_info(self) -> tuple[str, str]:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("The operator is not connected to a cluster yet.")
        return "http://localhost", "v1.30.1+k3s1"


def test_the_detection_waits_for_the_connection_of_the_engine():
    assert asyncio.run(local_clusters.detect(Engine(3))) == local_clusters.LocalCluster.K3S


def test_the_detection_fails_if_the_engine_does_not_connect(monkeypatch):
    monkeypatch.setattr(local_clusters, "START_LIMIT", 0)
    with pytest.raises(RuntimeError, match="is not connected"):
        asyncio.run(local_clusters.detect(Engine(3)))
