"""Clients of Kubernetes get the same outcomes from the embedded API server and from a real one.

Each client runs one flow on both (see `clients/flow.py`): CRDs, objects, selectors, all dialects of
patches, conflicts, subresources, watches, deletions with dependents, built-in kinds, errors.
"""

import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

import pytest
from kopf.testing import Cluster

from tests.support.programs import program

# Each step of kubectl is a process, which takes seconds on a busy machine.
LIMIT = 600
pytestmark = pytest.mark.timeout(LIMIT + 100)

HERE = pathlib.Path(__file__).parent / "clients"
LIBRARIES = ["kubernetes", "kubernetes-asyncio", "kr8s", "lightkube", "pykube"]
# The client and the step, with the reason for a difference that stays.
DIFFERENCES: dict[tuple[str, str], str] = {}
FEWEST_STEPS = {"helm": 30}


@pytest.fixture(scope="session")
def kubectl():
    return program("kubectl")


@pytest.fixture(scope="session")
def helm():
    return program("helm")


def outcomes(client, kubeconfig, folder, **variables):
    """The outcomes of the client's flow by their steps."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "KUBECONFIG": str(kubeconfig), **variables}
    done = subprocess.run(
        [sys.executable, HERE / "run.py", client], env=env, capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def compare(client, control_plane, folder, **variables):
    """Run the flow on both servers at the same time: no step depends on a duration."""
    with Cluster(access=True) as embedded, concurrent.futures.ThreadPoolExecutor(2) as pool:
        kubeconfigs = (control_plane.write_kubeconfig(), embedded.kubeconfig)
        runs = [pool.submit(outcomes, client, path, folder, **variables) for path in kubeconfigs]
        real, ours = (run.result() for run in runs)
    assert len(real) >= FEWEST_STEPS.get(client, 70)
    assert list(ours) == list(real)
    different = {
        step: {"real": real[step], "embedded": ours[step]} for step in real if real[step] != ours[step]
    }
    expected = {step for name, step in DIFFERENCES if name == client}
    assert {step: different[step] for step in different.keys() - expected} == {}
    assert expected <= different.keys(), "a difference is mended: remove it from DIFFERENCES"


@pytest.mark.parametrize("client", LIBRARIES)
def test_the_libraries(client, control_plane, tmp_path):
    site = os.environ.get("KOPF_OPERATORS_SITE")
    if not site:
        pytest.skip("KOPF_OPERATORS_SITE is not set: run `make operators`")
    compare(client, control_plane, tmp_path, PYTHONPATH=site)


def test_kubectl(kubectl, control_plane, tmp_path):
    compare("kubectl", control_plane, tmp_path, KUBECTL=kubectl)


def test_helm(helm, kubectl, control_plane, tmp_path):
    compare("helm", control_plane, tmp_path, HELM=helm, KUBECTL=kubectl)
