"""The choice of the cluster in a pod, where a service account of a real cluster exists too.

The pod is a mount namespace of Linux with the files of a service account at their usual place.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from kopf.testing import Cluster

pytestmark = pytest.mark.kopf_embedded_only
HANDLERS = pathlib.Path(__file__).with_name("handlers.py")
UNSHARE = ["unshare", "--map-root-user", "--mount"]
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
SCRIPT = f'mount -t tmpfs pod /var && mkdir -p {ACCOUNT} && cp "$ACCOUNT_FILES"/* {ACCOUNT} && exec "$@"'
LOGIN = """
import kopf


@kopf.on.login()
def log_in(**_):
    return kopf.ConnectionInfo(server={server!r}, ca_data={ca!r}, token={token!r}, priority=1000)
"""


@pytest.fixture(scope="module")
def pods():
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare command")
    done = subprocess.run(
        [*UNSHARE, "mount", "-t", "tmpfs", "pod", "/var"], capture_output=True, text=True, timeout=60
    )
    if done.returncode:
        pytest.skip(f"mount namespaces cannot be made here: {done.stderr.strip()}")


@pytest.fixture
def real(pods):
    """The cluster that the pod belongs to."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def other():
    """The cluster that the kubeconfig leads to."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def run_in_pod(real, tmp_path):
    """Run a command in a pod of the real cluster until it logs the text; the whole log."""
    files = tmp_path / "account"
    files.mkdir()
    (files / "token").write_text(real.connection.token)
    (files / "ca.crt").write_text(real.connection.ca_data)
    (files / "namespace").write_text("default")
    host, _, port = real.url.removeprefix("https://").partition(":")
    pod = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "ACCOUNT_FILES": str(files)}

    def run(*args, until, **variables):
        usual = {key: value for key, value in os.environ.items() if key not in ("KUBECONFIG", "KOPF_COMPAT")}
        command = [*UNSHARE, "sh", "-c", SCRIPT, "pod", sys.executable, "-m", "kopf", *args]
        env = usual | pod | variables
        log = []
        with subprocess.Popen(
            command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            for line in process.stdout:
                log.append(line)
                if until in line:
                    process.terminate()
        assert until in "".join(log), "".join(log)
        return "".join(log)

    return run


STARTED = "Unresolved resources cannot be served"


def paths_of(cluster):
    return [it.path for it in cluster.requests]


def test_the_service_account_is_used_without_a_kubeconfig(run_in_pod, real):
    run_in_pod("run", "-A", str(HANDLERS), until=STARTED)
    assert "/apis" in paths_of(real)


def test_the_namespace_of_a_service_account_may_be_unknown(run_in_pod, real, tmp_path):
    (tmp_path / "account" / "namespace").unlink()
    run_in_pod("run", "-A", str(HANDLERS), until=STARTED)
    assert "/apis" in paths_of(real)


def test_a_named_kubeconfig_wins_over_the_service_account(run_in_pod, real, other):
    run_in_pod("run", "-A", str(HANDLERS), until=STARTED, KUBECONFIG=str(other.kubeconfig))
    assert paths_of(real) == []


def test_a_named_kubeconfig_that_is_missing_leaves_the_service_account(run_in_pod, real, tmp_path):
    run_in_pod("run", "-A", str(HANDLERS), until=STARTED, KUBECONFIG=str(tmp_path / "none"))
    assert "/apis" in paths_of(real)


def test_the_service_account_wins_in_kopf_1_45(run_in_pod, real, other):
    kubeconfig = str(other.kubeconfig)
    run_in_pod("run", "-A", str(HANDLERS), until=STARTED, KUBECONFIG=kubeconfig, KOPF_COMPAT="1.45")
    assert "/apis" in paths_of(real)
    assert paths_of(other) == []


@pytest.mark.parametrize("compat", ["", "1.45"])
@pytest.mark.parametrize("login", [False, True], ids=["", "own login handler"])
def test_development_never_uses_the_real_cluster(run_in_pod, real, tmp_path, login, compat):
    handlers = tmp_path / "handlers.py"
    connection = real.connection
    text = LOGIN.format(server=real.url, ca=connection.ca_data, token=connection.token) if login else ""
    handlers.write_text(HANDLERS.read_text() + text)
    log = run_in_pod("dev", "handlers.py", until=STARTED, KOPF_COMPAT=compat)
    assert ("Activity 'log_in' succeeded." in log) is login
    assert paths_of(real) == []
