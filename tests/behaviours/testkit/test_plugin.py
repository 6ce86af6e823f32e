"""The pytest plugin, as authors of operators use it: several workers at once, on every kind of clusters."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from kopf.testing import Cluster

SUITE = pathlib.Path(__file__).with_name("suite.py")
# What each of the tests of the suite becomes on each kind.
TESTS = 10
ONLY_EMBEDDED = 2

pytestmark = pytest.mark.kopf_embedded_only


def run(folder, kind, environ, *options):
    shutil.copy(SUITE, folder / "test_suite.py")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--kopf-cluster={kind}", *options],
        cwd=folder,
        env={**os.environ, **environ},
        text=True,
        capture_output=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_every_test_has_a_cluster_in_memory(tmp_path, options):
    done = run(tmp_path, "embedded", {}, *options)
    assert f"{TESTS} passed" in done.stdout, done.stdout


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_tests_share_an_existing_cluster_and_leave_nothing_behind(tmp_path, options):
    with Cluster() as cluster:
        before = cluster.version
        done = run(tmp_path, "kubeconfig", {"KUBECONFIG": str(cluster.kubeconfig)}, *options)
        assert f"{TESTS - ONLY_EMBEDDED} passed, {ONLY_EMBEDDED} skipped" in done.stdout, done.stdout
        assert cluster.version > before, "it was this cluster"
        assert cluster.list("crds") == []
        terminating = [it for it in cluster.list("namespaces") if it["metadata"]["name"].startswith("kopf-")]
        assert terminating == []


@pytest.mark.skipif("KUBEBUILDER_ASSETS" not in os.environ, reason="needs KUBEBUILDER_ASSETS")
def test_each_worker_has_a_real_control_plane(tmp_path):
    done = run(tmp_path, "assets", {}, "-n", "2")
    assert f"{TESTS - ONLY_EMBEDDED} passed, {ONLY_EMBEDDED} skipped" in done.stdout, done.stdout


def test_what_is_not_there_is_told(tmp_path):
    done = run(tmp_path, "kubeconfig", {"KUBECONFIG": str(tmp_path / "nope")})
    assert "There is no kubeconfig" in done.stdout + done.stderr
    done = run(tmp_path, "assets", {"KUBEBUILDER_ASSETS": str(tmp_path)})
    assert "KUBEBUILDER_ASSETS" in done.stdout + done.stderr
