"""Operators in threads of tests load no modules on demand: see `preloading`."""

import subprocess
import sys

SOURCE = """
import sys, kopf, pathlib
from kopf._runtime.preloading import load_modules
load_modules()
before = set(sys.modules)
from kopf.testing import Cluster, Operator

def declare():
    kopf.cache("secrets")

    @kopf.on.reconcile("configmaps", owns=["secrets"])
    async def sync(api, children, **_):
        await kopf.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}})

with Cluster() as cluster, Operator(cluster, declare):
    cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}})
    cluster.wait_for("secrets", "x")
loaded = {name for name in set(sys.modules) - before if name.startswith(("kopf._runtime", "kopf._intents"))}
assert not loaded, loaded
"""


def test_operators_in_threads_load_no_modules_on_demand():
    done = subprocess.run([sys.executable, "-c", SOURCE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
