"""What an operator keeps in memory when it has nothing to do: not the code that only its start needs."""

import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.kopf_embedded_only,
    pytest.mark.skipif(not pathlib.Path("/proc/self/pagemap").exists(), reason="only Linux tells of pages"),
]

OPERATOR = """
import re
import kopf

used = 0

def pages_of_files():
    with open("/proc/self/status") as status:
        return int(re.search(r"RssFile:\\s+(\\d+)", status.read())[1])

@kopf.on.startup()
def look(**_):
    global used
    used = pages_of_files()

@kopf.timer("v1", "configmaps", interval=0.1)
def look_again(name, patch, **_):
    # Without that, there are more and more of them.
    if pages_of_files() < used * 3 / 4:
        patch.metadata.labels["small"] = "yes"

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


@pytest.mark.usefixtures("process")
def test_code_that_only_the_start_needs_is_let_go_and_comes_back(kopf_cluster):
    kopf_cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "early"}})
    kopf_cluster.wait_for("configmaps", "early", {"metadata": {"labels": {"small": "yes"}}}, timeout=60)
    kopf_cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}})
    kopf_cluster.wait_for("configmaps", "late", {"metadata": {"labels": {"greeted": "yes"}}})
