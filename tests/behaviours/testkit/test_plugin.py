"""The pytest plugin, as authors of operators use it: several workers at once, on every kind of clusters."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from kopf.testing import Cluster

SUITE = pathlib.Path(__file__).with_name("suite.py")
# The outcome of each test of the suite on each kind of cluster.
TESTS = 11
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


def test_missing_configuration_is_reported(tmp_path):
    done = run(tmp_path, "kubeconfig", {"KUBECONFIG": str(tmp_path / "nope")})
    assert "There is no kubeconfig" in done.stdout + done.stderr
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    (tmp_path / "plugin").write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],"
        " clusters: [{name: c, cluster: {server: 'https://example.com'}}],"
        " users: [{name: u, user: {exec: {command: aws}}}]}"
    )
    done = run(tmp_path, "kubeconfig", {"KUBECONFIG": str(tmp_path / "plugin")})
    assert "has credentials of a plugin (exec)" in done.stdout + done.stderr
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    (tmp_path / "first").write_text("{current-context: c, contexts: []}")
    done = run(tmp_path, "kubeconfig", {"KUBECONFIG": f"{tmp_path / 'first'}:{tmp_path / 'plugin'}"})
    assert "The testing kit reads only one file" in done.stdout + done.stderr
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    done = run(tmp_path, "assets", {"KUBEBUILDER_ASSETS": str(tmp_path)})
    assert "KUBEBUILDER_ASSETS" in done.stdout + done.stderr


STRICT = """
import kopf, pytest

POD = "{apiVersion: v1, kind: ConfigMap, metadata: {name: one}, data: {a: b}}"

def failing(error):
    def handlers():
        @kopf.on.create("configmaps")
        def greet(**_):
            raise error
    return handlers

def test_quiet(kopf_cluster, kopf_operator):
    operator = kopf_operator(failing(ValueError("Oops.")))
    kopf_cluster.apply(POD)
    operator.wait_until_idle()

def test_waiting(kopf_cluster, kopf_operator):
    kopf_operator(failing(ValueError("Oops.")))
    kopf_cluster.apply(POD)
    kopf_cluster.wait_for("cm", "one", {"status": {"never": "there"}}, timeout=1000)

def test_without_waiting(kopf_cluster, kopf_operator):
    operator = kopf_operator(failing(ValueError("Oops.")))
    kopf_cluster.apply(POD)
    operator._clock_control.wait_until_idle(10)

def test_on_purpose(kopf_cluster, kopf_operator):
    operator = kopf_operator(failing(kopf.TemporaryError("Not yet.", delay=100)))
    kopf_cluster.apply(POD)
    operator.wait_until_idle()

def test_expected(kopf_cluster, kopf_operator):
    operator = kopf_operator(failing(ValueError("Oops.")), allow_errors=(KeyError, ValueError))
    kopf_cluster.apply(POD)
    operator.wait_until_idle()

def test_lenient(kopf_cluster, kopf_operator):
    operator = kopf_operator(failing(ValueError("Oops.")), strict=False)
    kopf_cluster.apply(POD)
    operator.wait_until_idle()
"""


@pytest.mark.parametrize("options", [(), ("-x",)])
def test_unexpected_exceptions_of_handlers_fail_the_test(tmp_path, options):
    (tmp_path / "test_strict.py").write_text(STRICT)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", *options],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "200"},
        text=True,
        capture_output=True,
        timeout=300,
    )
    if options:
        assert "1 failed in" in done.stdout, done.stdout + done.stderr
        return
    assert "3 failed, 3 passed in" in done.stdout, done.stdout
    for name in ("test_quiet", "test_waiting", "test_without_waiting"):
        summary = f"FAILED test_strict.py::{name} - kopf.testing.UnexpectedError: Handler 'greet'"
        assert summary in done.stdout
    assert "ValueError: Oops." in done.stdout
    assert "def wait_for(" not in done.stdout and "def check(" not in done.stdout, "our frames are hidden"


THREADS = """
import gc, threading
import kopf, pytest

POD = "{apiVersion: v1, kind: ConfigMap, metadata: {name: one}}"

def pool_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")]

@pytest.mark.parametrize("number", range(5))
def test_synchronous_handlers(kopf_cluster, kopf_operator, number):
    def handlers():
        @kopf.on.create("configmaps")
        def greet(**_):
            pass

    operator = kopf_operator(handlers)
    kopf_cluster.apply(POD)
    operator.wait_until_idle()
    assert pool_threads()

def test_the_end():
    gc.collect()
    for thread in pool_threads():
        thread.join(10)
    assert pool_threads() == []
"""


def test_operators_do_not_outlive_their_tests(tmp_path):
    (tmp_path / "test_threads.py").write_text(THREADS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=600,
    )
    assert "6 passed in" in done.stdout, done.stdout + done.stderr
