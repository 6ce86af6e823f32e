"""Fixtures of the kubectl tests: the binary, and a cluster per test.

The binary is that of $KUBECTL or the PATH, or it is built with Go (see scripts/kubectl.sh); without any of
them the tests are skipped with a reason.
"""

import json
import os
import pathlib
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from kopf.testing import Cluster

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "kubectl.sh"

WIDGETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.kubectl.example.com}
spec:
  group: kubectl.example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList, shortNames: [wd]}
  versions:
    - name: v1
      served: true
      storage: true
      subresources:
        status: {}
        scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
      additionalPrinterColumns:
        - {name: Size, type: integer, jsonPath: .spec.size}
        - {name: Colour, type: string, jsonPath: .spec.colour, priority: 1}
      schema:
        openAPIV3Schema:
          type: object
          description: A thing of a size.
          properties:
            spec:
              type: object
              description: The desired state of the thing.
              required: [size]
              properties:
                size: {type: integer, minimum: 1, description: How large it is.}
                colour: {type: string, enum: [red, blue]}
                replicas: {type: integer}
                parts:
                  type: array
                  items: {type: object, properties: {weight: {type: integer, description: In grams.}}}
            status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""


class Kubectl:
    """kubectl on one cluster."""

    def __init__(self, binary: pathlib.Path, kubeconfig: pathlib.Path, home: pathlib.Path) -> None:
        self.binary, self.kubeconfig, self.home = binary, kubeconfig, home

    def start(self, *words: str, **env: str) -> "subprocess.Popen[str]":
        """A process that the test talks with."""
        # A separate home: kubectl caches discovery by the address of the server.
        own = {"HOME": str(self.home), "PATH": os.environ["PATH"], "KUBECONFIG": str(self.kubeconfig), **env}
        command = [str(self.binary), *words]
        return subprocess.Popen(
            command,
            env=own,
            cwd=self.home,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *words: str, input: str | None = None, **env: str) -> "subprocess.CompletedProcess[str]":
        with self.start(*words, **env) as process:
            try:
                output, errors = process.communicate(input, timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(words, process.returncode, output, errors)

    def __call__(self, *words: str, input: str | None = None, **env: str) -> str:
        """What kubectl prints; it must succeed."""
        done = self.run(*words, input=input, **env)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}{done.stdout}"
        return done.stdout

    def fails(self, *words: str, input: str | None = None, **env: str) -> str:
        """What kubectl complains of; it must fail."""
        done = self.run(*words, input=input, **env)
        assert done.returncode != 0, f"kubectl {' '.join(words)} went well: {done.stdout}"
        return done.stderr

    def object(self, *words: str) -> dict[str, Any]:
        """An object as it is in the cluster."""
        return json.loads(self("get", *words, "-o", "json", "--show-managed-fields"))

    def file(self, text: str, name: str = "manifest.yaml") -> str:
        """A file with this text."""
        path = self.home / name
        path.write_text(text)
        return str(path)


@pytest.fixture(scope="session")
def binary() -> pathlib.Path:
    done = subprocess.run([SCRIPT], capture_output=True, text=True, timeout=170)
    if done.returncode == 3:
        pytest.skip(f"no kubectl: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return pathlib.Path(done.stdout.strip())


@pytest.fixture
def options() -> dict[str, Any]:
    """The options of the cluster; tests may override them."""
    return {}


@pytest.fixture
def cluster(binary: pathlib.Path, options: dict[str, Any]) -> Iterator[Cluster]:
    with Cluster(**options) as cluster:
        yield cluster


@pytest.fixture
def kubectl(binary: pathlib.Path, cluster: Cluster, tmp_path: pathlib.Path) -> Kubectl:
    return Kubectl(binary, cluster.kubeconfig, tmp_path)


@pytest.fixture
def widgets(cluster: Cluster) -> str:
    """Declares widgets; returns the manifest of one."""
    cluster.apply(WIDGETS)
    return widget()


def widget(size: int = 3, name: str = "one", colour: str = "red") -> str:
    return (
        f"apiVersion: kubectl.example.com/v1\nkind: Widget\nmetadata: {{name: {name}}}\n"
        f"spec:\n  size: {size}\n  colour: {colour}\n"
    )
