"""What an operator keeps in memory when it has nothing to do: not the code that only its start needs."""

import os
import pathlib
import re
import subprocess
import sys
import time

import pytest

pytestmark = [
    pytest.mark.kopf_embedded_only,
    pytest.mark.skipif(not pathlib.Path("/proc/self/pagemap").exists(), reason="only Linux tells of pages"),
]

OPERATOR = """
import kopf

@kopf.on.create("v1", "configmaps")
def greet(patch, **_):
    patch.metadata.labels["greeted"] = "yes"
"""


@pytest.fixture()
def process(kopf_cluster, tmp_path):
    """An operator in a process of its own: nobody else's code is there."""
    handlers = tmp_path / "handlers.py"
    handlers.write_text(OPERATOR)
    environment = {**os.environ, "KUBECONFIG": str(kopf_cluster.kubeconfig)}
    argv = [sys.executable, "-m", "kopf", "run", "-A", "--standalone", str(handlers)]
    with subprocess.Popen(argv, env=environment) as process:
        yield process
        process.terminate()


def pages_of_files(pid: int) -> int:
    found = re.search(r"RssFile:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])


def test_code_that_only_the_start_needs_is_let_go(kopf_cluster, process):
    kopf_cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "early"}})
    kopf_cluster.wait_for("configmaps", "early", {"metadata": {"labels": {"greeted": "yes"}}})
    used = pages_of_files(process.pid)
    deadline = time.monotonic() + 60
    while pages_of_files(process.pid) > used / 2:
        assert time.monotonic() < deadline, "nothing was let go"
        time.sleep(0.05)
    kopf_cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}})
    kopf_cluster.wait_for("configmaps", "late", {"metadata": {"labels": {"greeted": "yes"}}})
