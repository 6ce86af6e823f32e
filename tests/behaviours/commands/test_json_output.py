"""`-o json`: one document on stdout, and all messages on stderr."""

import json
import os
import signal
import subprocess
import sys

import pytest
import yaml
from kopf.testing import Cluster

from tests.support.commands import WIDGETS, environment, kopf

pytestmark = pytest.mark.kopf_embedded_only
PEERINGS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {0}.kopf.dev}}
spec:
  group: kopf.dev
  scope: {1}
  names: {{plural: {0}, kind: {2}}}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
"""
CRDS = [
    PEERINGS.format("kopfpeerings", "Namespaced", "KopfPeering"),
    PEERINGS.format("clusterkopfpeerings", "Cluster", "ClusterKopfPeering"),
]
SERVERS = [
    "embedded",
    pytest.param(
        "assets",
        marks=pytest.mark.skipif("KUBEBUILDER_ASSETS" not in os.environ, reason="needs KUBEBUILDER_ASSETS"),
    ),
]


@pytest.fixture(params=SERVERS)
def server(request):
    """A server with the CRDs of peering, and with the peering objects `crew` in some places."""
    with Cluster(request.param) as cluster:
        cluster.apply("---".join(CRDS))
        crew = {"apiVersion": "kopf.dev/v1", "metadata": {"name": "crew"}}
        for namespace in ("a", "b"):
            cluster.apply(
                yaml.safe_dump({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            )
            cluster.create(
                {**crew, "kind": "KopfPeering", "metadata": {"name": "crew", "namespace": namespace}}
            )
        cluster.create({**crew, "kind": "ClusterKopfPeering"})
        yield cluster


def run(cluster, folder, *args):
    """The document of a successful command."""
    done = kopf(folder, *args, "-o", "json", KUBECONFIG=str(cluster.kubeconfig))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_freeze_and_resume_print_the_written_objects(server, tmp_path):
    namespaced = ("-n", "a", "-n", "b", "-n", "c", "-P", "crew", "--id", "me")
    report, messages = run(server, tmp_path, "freeze", *namespaced, "-t", "600", "-p", "50")
    place = {"resource": "kopfpeerings", "group": "kopf.dev", "name": "crew"}
    written = [{**place, "namespace": "a"}, {**place, "namespace": "b"}]
    common = {"identity": "me", "peering": "crew", "objects": written}
    assert report == {"command": "freeze", "priority": 50, "lifetime": 600, **common}
    assert "There is no kopfpeerings.v1.kopf.dev named \"crew\" in 'c'." in messages
    assert server.get("kopfpeerings", "crew", namespace="a")["status"]["me"]["priority"] == 50
    report, messages = run(server, tmp_path, "resume", *namespaced)
    assert report == {"command": "resume", "priority": None, "lifetime": None, **common}
    assert not (server.get("kopfpeerings", "crew", namespace="a").get("status") or {})


def test_cluster_scoped_peering_objects_have_no_namespace(server, tmp_path):
    report, _ = run(server, tmp_path, "freeze", "-A", "-P", "crew", "-t", "60", "--dev")
    assert report["priority"] == 666
    assert report["identity"]
    [item] = report["objects"]
    assert item == {"resource": "clusterkopfpeerings", "group": "kopf.dev", "namespace": "", "name": "crew"}


@pytest.mark.parametrize("server", ["embedded"], indirect=True)
def test_failed_commands_print_no_document(server, tmp_path):
    args = ("freeze", "-n", "a", "-P", "no-such", "-t", "60", "-o", "json")
    done = kopf(tmp_path, *args, KUBECONFIG=str(server.kubeconfig))
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Error: There is no peering object" in done.stderr
    report, messages = run(server, tmp_path, "resume", "-n", "a", "-P", "no-such")
    assert report["objects"] == []
    assert 'named "no-such"' in messages


@pytest.mark.parametrize("server", ["embedded"], indirect=True)
def test_text_is_the_default(server, tmp_path):
    args = ("freeze", "-n", "a", "-P", "crew", "-t", "60")
    done = kopf(tmp_path, *args, KUBECONFIG=str(server.kubeconfig))
    assert (done.returncode, done.stdout) == (0, "")


class Running:
    """A command that runs until it is stopped; its messages are in a file."""

    def __init__(self, folder, *args):
        self.messages = folder / "messages.txt"
        with self.messages.open("w") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kopf", *args, "-o", "json"],
                cwd=folder,
                env=environment(folder),
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )

    def read_document(self):
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if line == "}\n":
                return json.loads("".join(lines))
        raise AssertionError(f"no document in {lines!r}: {self.messages.read_text()}")

    def stop(self):
        """Stop the command; the exit code, and the rest of the output."""
        self.process.send_signal(signal.SIGINT)
        rest, _ = self.process.communicate(timeout=30)
        return self.process.returncode, rest


@pytest.fixture
def start(tmp_path):
    started = []

    def start(*args):
        started.append(Running(tmp_path, *args))
        return started[-1]

    yield start
    for one in started:
        one.process.terminate()
        one.process.communicate(timeout=30)


def test_the_document_of_a_cluster_is_printed_when_it_is_ready(start, tmp_path):
    running = start("cluster")
    report = running.read_document()
    assert report.keys() == {"server", "kubeconfig"}
    assert report["kubeconfig"] == str(tmp_path / ".kopf" / "kubeconfig")
    with Cluster("kubeconfig", kubeconfig=report["kubeconfig"]) as cluster:
        assert cluster.url == report["server"]
        assert cluster.find("namespaces", "default") is not None
    assert running.stop() == (0, "")
    assert "stop it with Ctrl+C" in running.messages.read_text()


def test_the_document_of_development_is_printed_when_the_manifests_are_applied(start, tmp_path):
    source = "import kopf\nprint('loaded', flush=True)\n"
    source += (
        "@kopf.on.create('widgets')\ndef greet(**_):\n    print('called', flush=True)\n    return {'x': 1}\n"
    )
    (tmp_path / "handlers.py").write_text(source)
    (tmp_path / "widgets.yaml").write_text(WIDGETS)
    running = start("dev", "handlers.py", "--manifests", "widgets.yaml", "--state", "state.json")
    report = running.read_document()
    assert report.keys() == {"server", "kubeconfig"}
    with Cluster("kubeconfig", kubeconfig=report["kubeconfig"]) as cluster:
        cluster.wait_for("widgets", "first", {"status": {"greet": {"x": 1}}})
    assert running.stop() == (0, "")
    messages = running.messages.read_text()
    for text in (
        "loaded",
        "called",
        "Applied: Widget first.",
        "kopf changed widgets/first",
        "objects are kept in",
    ):
        assert text in messages


def test_development_ends_with_the_exit_code_of_its_operator(start, tmp_path):
    (tmp_path / "handlers.py").write_text("raise ValueError('There is a mistake here.')")
    running = start("dev", "handlers.py")
    assert running.read_document()["server"].startswith("https://127.0.0.1:")
    rest, _ = running.process.communicate(timeout=30)
    assert (running.process.returncode, rest) == (1, "")
    assert "There is a mistake here." in running.messages.read_text()
