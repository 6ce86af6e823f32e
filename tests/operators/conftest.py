"""Whole operators with client libraries of all kinds, under kopf-rs and under Kopf 1.45."""

import os
import pathlib
from collections.abc import Callable, Iterator

import pytest
import yaml

from tests.support import cluster as kube
from tests.support import controlplane
from tests.support.fixtures import flavour
from tests.support.operators import Operator

HERE = pathlib.Path(__file__).parent
GROUP = "operators.testing.kopf.dev"


@pytest.fixture(scope="session")
def site() -> str:
    """The site-packages with the client libraries and with the operators from the registry."""
    found = os.environ.get("KOPF_OPERATORS_SITE")
    if not found:
        pytest.skip("KOPF_OPERATORS_SITE is not set: run `make operators`")
    return found


@pytest.fixture(params=["ours", "original"])
def python(request: pytest.FixtureRequest) -> str:
    """Each test runs under both."""
    fixture = {"ours": "kopf_python", "original": "reference_python"}[request.param]
    python = str(request.getfixturevalue(fixture))
    assert flavour(python) == {"ours": "kopf-rs", "original": "kopf"}[request.param]
    return python


Start = Callable[..., Operator]


@pytest.fixture
def start(
    python: str, site: str, control_plane: controlplane.ControlPlane, tmp_path: pathlib.Path, namespace: str
) -> Iterator[Start]:
    """Start `kopf run` with arguments, or a script; stop it after the test."""
    started: list[Operator] = []

    def run(*args: str, script: str | None = None) -> Operator:
        keep = {"PATH", "LANG", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR"}
        env = {key: value for key, value in os.environ.items() if key in keep}
        env |= {
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": str(HERE),
            "HOME": str(tmp_path),
            "KUBECONFIG": str(control_plane.write_kubeconfig()),
            "CALLS_FILE": str(tmp_path / "calls.jsonl"),
            "NAMESPACE": namespace,
        }
        command = [str(HERE / "launch.py"), site, "run", *args] if script is None else [script, site, *args]
        started.append(Operator([python, *command], tmp_path, env))
        return started[-1]

    yield run
    for operator in started:
        operator.close()
        print(f"--- Output, ended with {operator.process.returncode}:\n{operator.log}")


class Kinds:
    """Resources of the tests: those of CRDs, made when they are needed, and some that are built in."""

    config_maps = kube.Resource("", "v1", "configmaps")
    services = kube.Resource("", "v1", "services")
    secrets = kube.Resource("", "v1", "secrets")
    events = kube.Resource("", "v1", "events")
    deployments = kube.Resource("apps", "v1", "deployments")

    def __init__(self, cluster: kube.Cluster) -> None:
        self.cluster = cluster

    def define(self, plural: str, kind: str) -> kube.Resource:
        """A kind with any fields and a status."""
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}},
        }
        return self.apply(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"{plural}.{GROUP}"},
                "spec": {
                    "group": GROUP,
                    "scope": "Namespaced",
                    "versions": [version],
                    "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
                },
            }
        )

    def apply(self, crd: kube.Object) -> kube.Resource:
        """Create a CRD if it does not exist."""
        if self.cluster.find(kube.CRDS, None, crd["metadata"]["name"]) is None:
            self.cluster.create(kube.CRDS, None, crd)
        return self.cluster.await_crd(crd)

    def apply_file(self, path: pathlib.Path) -> list[kube.Resource]:
        """Create all CRDs of a file."""
        return [self.apply(crd) for crd in yaml.safe_load_all(path.read_text()) if crd]


@pytest.fixture
def kinds(cluster: kube.Cluster) -> Kinds:
    return Kinds(cluster)


class Desk:
    """Objects of one kind in the namespace of the test."""

    def __init__(self, cluster: kube.Cluster, namespace: str, resource: kube.Resource) -> None:
        self.cluster, self.namespace, self.resource = cluster, namespace, resource

    def create(self, kind: str, name: str, **fields: object) -> None:
        version = f"{self.resource.group}/{self.resource.version}".lstrip("/")
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}
        self.cluster.create(self.resource, self.namespace, body)

    def patch(self, name: str, patch: kube.Object) -> None:
        self.cluster.patch(self.resource, self.namespace, name, patch)

    def delete(self, name: str) -> None:
        self.cluster.delete(self.resource, self.namespace, name)

    def wait(
        self, name: str, condition: Callable[[kube.Object], object] = lambda _: True, timeout: float = 30
    ) -> kube.Object:
        found = self.cluster.wait(
            self.resource, self.namespace, name, lambda body: body and condition(body), timeout=timeout
        )
        assert found is not None
        return found

    def wait_until_gone(self, name: str) -> None:
        self.cluster.wait(self.resource, self.namespace, name, lambda body: body is None, timeout=30)


@pytest.fixture
def desk(cluster: kube.Cluster, namespace: str) -> Callable[[kube.Resource], Desk]:
    return lambda resource: Desk(cluster, namespace, resource)
