"""Peers compare timestamps of different machines: after a change of a clock, or a suspended machine, an
operator must not be treated as dead by its peers.
"""

import datetime
import os
import pathlib
import subprocess
import sys
import threading
import time

import pytest

from tests.faults.fake_clock import FakeClock
from tests.support.crds import PEERINGS

OPERATOR = """
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.peering.name = "faults"
    settings.peering.mandatory = True
    settings.peering.lifetime = 12

@kopf.on.event("configmaps")
def peek(**_):
    pass
"""


def seen(cluster) -> float | None:
    """How far the operator's clock is ahead of ours, by its last keep-alive, in seconds."""
    status = cluster.get("clusterkopfpeerings", "faults").get("status") or {}
    moments = [datetime.datetime.fromisoformat(it["lastseen"]) for it in status.values()]
    now = datetime.datetime.now(datetime.UTC)
    return max(((moment - now).total_seconds() for moment in moments), default=None)


@pytest.mark.kopf_embedded_only
@pytest.mark.timeout(120)
def test_keepalives_follow_the_clock_of_the_machine(kopf_cluster, tmp_path):
    body = {"apiVersion": "kopf.dev/v1", "kind": "ClusterKopfPeering", "metadata": {"name": "faults"}}
    kopf_cluster.apply(PEERINGS)
    kopf_cluster.create(body)
    fake_clock = FakeClock(tmp_path)
    script = tmp_path / "peer.py"
    script.write_text(OPERATOR)
    known = {key: it for key, it in os.environ.items() if not key.startswith("KOPF_")}
    environment = {**known, **fake_clock.environment, "KUBECONFIG": str(kopf_cluster.kubeconfig)}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, "-m", "kopf", "run", "-A", str(script)]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        for ahead in (0, 3600, -3600):
            fake_clock.set(ahead=ahead)
            wait_until_near(kopf_cluster, ahead, tmp_path / "log")
    finally:
        process.terminate()
        process.wait(60)


def wait_until_near(cluster, ahead: int, log: pathlib.Path) -> None:
    until = time.monotonic() + 45
    while (found := seen(cluster)) is None or abs(found - ahead) > 60:
        assert time.monotonic() < until, (found, ahead, log.read_text()[-3000:])
        threading.Event().wait(0.2)
