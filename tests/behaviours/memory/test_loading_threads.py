"""The compiled module is loaded by the first thread that needs it, and outlives that thread."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.kopf_embedded_only

# A crash depends on what the memory of the ended thread is used for next.
RUNS = range(3)

SERVERS = """
import threading

def use_server():
    from kopf.testing import Cluster
    with Cluster() as cluster:
        for number in range(200):
            name = f"object-{number}"
            cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})

for _ in range(4):
    thread = threading.Thread(target=use_server)
    thread.start()
    thread.join()
print("finished")
"""

OPERATORS = """
import threading
import kopf

@kopf.on.event("v1", "configmaps")
def observe(name, **_):
    seen.add(name)
    if len(seen) == 300:
        stop.set()

def run():
    kopf.run(stop_flag=stop, clusterwide=True, standalone=True)

for _ in range(4):
    seen = set()
    stop = threading.Event()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert stop.is_set()
print("finished")
"""


def run(script: str, **environment: str) -> None:
    completed = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (completed.returncode, completed.stdout) == (0, "finished\n"), completed.stderr


@pytest.mark.parametrize("_", RUNS)
def test_servers_in_threads_one_after_another(_):
    run(SERVERS)


@pytest.mark.parametrize("_", RUNS)
def test_operators_in_threads_one_after_another(_, kopf_cluster):
    for number in range(300):
        name = f"object-{number}"
        kopf_cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
    run(OPERATORS, KUBECONFIG=str(kopf_cluster.kubeconfig))
