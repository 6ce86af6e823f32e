"""Fixtures of the tests on a real control plane: one control plane per run, one namespace per test.

The same tests run under Kopf 1.45: ``pytest tests/real --kopf-python PATH``. `differences.py` lists the
expected failures with reasons.
"""

import functools
import pathlib
import secrets
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.support import cluster as kube
from tests.support import controlplane, embedded
from tests.support.crds import crd
from tests.support.embedded import EmbeddedPlane
from tests.support.operators import Launcher


@functools.cache
def flavour(python: str) -> str:
    """The name of the distribution which gives that interpreter its kopf."""
    code = (
        "import importlib.metadata as m; "
        'print(*(d.metadata["Name"] for d in m.distributions()'
        ' if d.metadata["Name"] in ("kopf", "kopf-rs") and "+rs." not in d.version))'
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, cwd="/", timeout=60)
    names = done.stdout.split()
    if len(names) != 1:
        raise pytest.UsageError(
            f"{python} has {names or 'no kopf'}; exactly one of kopf and kopf-rs is needed"
        )
    return names[0]


@pytest.fixture(scope="session")
def kopf_python(pytestconfig: pytest.Config) -> str:
    python = pytestconfig.getoption("--kopf-python")
    flavour(python)
    return str(python)


@pytest.fixture(scope="session")
def reference_python(pytestconfig: pytest.Config) -> str:
    python = pytestconfig.getoption("--reference-python")
    if not python:
        pytest.skip("no reference interpreter: set KOPF_REFERENCE_PYTHON to a Python with kopf==1.45.2")
    return str(python)


@pytest.fixture(scope="session")
def control_plane(pytestconfig: pytest.Config) -> Iterator[controlplane.ControlPlane | EmbeddedPlane]:
    if pytestconfig.getoption("--embedded"):
        with embedded.running() as plane:
            yield plane
        return
    try:
        assets = controlplane.find_assets()
    except controlplane.ClusterUnavailableError as error:
        pytest.skip(str(error))
    with controlplane.running(assets) as plane:
        yield plane


@pytest.fixture(scope="session")
def cluster(control_plane: controlplane.ControlPlane) -> kube.Cluster:
    """The cluster as its administrator sees it."""
    return kube.Cluster(control_plane.write_kubeconfig())


@pytest.fixture(scope="session")
def parcels(cluster: kube.Cluster) -> kube.Resource:
    """The resource of most tests: parcels with any fields and a status subresource."""
    return cluster.create_crd(crd("parcels", "Parcel"))


@pytest.fixture(scope="session")
def crates(cluster: kube.Cluster) -> kube.Resource:
    """A resource with a strict schema: unknown fields are dropped by the server."""
    return cluster.create_crd(crd("crates", "Crate", pruned=True))


@pytest.fixture
def new_namespace(cluster: kube.Cluster) -> Iterator[Callable[[str], str]]:
    """Create namespaces, and delete them after the test without waiting."""
    made: list[str] = []

    def make(prefix: str) -> str:
        name = f"{prefix}-{secrets.token_hex(3)}"
        cluster.create(kube.NAMESPACES, None, {"metadata": {"name": name}})
        made.append(name)
        return name

    yield make
    for name in made:
        cluster.delete(kube.NAMESPACES, None, name)


@pytest.fixture
def namespace(new_namespace: Callable[[str], str]) -> str:
    return new_namespace("test")


@pytest.fixture
def operator(
    kopf_python: str,
    control_plane: controlplane.ControlPlane,
    cluster: kube.Cluster,
    tmp_path: pathlib.Path,
    namespace: str,
    parcels: kube.Resource,
) -> Iterator[Launcher]:
    """Start operators: ``operator('''...handlers...''')``; the ones still running at the end are killed."""
    launcher = Launcher(kopf_python, tmp_path, cluster.kubeconfig, namespace)
    yield launcher
    launcher.close()
    for number, run in enumerate(launcher.started):
        # Shown by pytest if the test has failed.
        print(f"--- Output of operator {number}, ended with {run.process.returncode}:\n{run.log}")
    # No operator is left to remove the finalizers, which would block the deletion of the namespace.
    for item in cluster.request("GET", parcels.path(namespace))["items"]:
        if item["metadata"].get("finalizers"):
            cluster.patch(parcels, namespace, item["metadata"]["name"], {"metadata": {"finalizers": None}})


class Shelf:
    """The parcels of one test, with the operations of a user of kubectl."""

    def __init__(self, cluster: kube.Cluster, resource: kube.Resource, namespace: str) -> None:
        self.cluster, self.resource, self.namespace = cluster, resource, namespace

    def create(
        self,
        name: str,
        spec: kube.Object | None = None,
        *,
        status: kube.Object | None = None,
        **metadata: object,
    ) -> kube.Object:
        body = {
            "apiVersion": f"{self.resource.group}/{self.resource.version}",
            "kind": self.kind,
            "metadata": {"name": name, **metadata},
            "spec": spec or {},
        }
        made = self.cluster.create(self.resource, self.namespace, body)
        if status is not None:
            made = self.cluster.patch(self.resource, self.namespace, name, {"status": status}, "status")
        return made

    @property
    def kind(self) -> str:
        return self.resource.plural.removesuffix("s").capitalize()

    def patch(self, name: str, patch: kube.Object) -> kube.Object:
        return self.cluster.patch(self.resource, self.namespace, name, patch)

    def annotate(self, name: str, **annotations: str | None) -> kube.Object:
        values = {f"kopf.zalando.org/{key.replace('_', '-')}": value for key, value in annotations.items()}
        return self.patch(name, {"metadata": {"annotations": values}})

    def get(self, name: str) -> kube.Object:
        return self.cluster.get(self.resource, self.namespace, name)

    def delete(self, name: str) -> None:
        self.cluster.delete(self.resource, self.namespace, name)

    def wait(
        self, name: str, condition: Callable[[kube.Object], object], *, timeout: float = 30
    ) -> kube.Object:
        """Wait until the object exists and the condition holds."""
        found = self.cluster.wait(
            self.resource,
            self.namespace,
            name,
            lambda body: body is not None and condition(body),
            timeout=timeout,
        )
        assert found is not None
        return found

    def wait_until_handled(self, name: str, *, status: object = None, timeout: float = 30) -> kube.Object:
        """Wait until the object as it is now has been handled in full, with no progress left behind.

        The status is written by a separate request, so tests have to wait for it.
        """
        return self.wait(
            name,
            lambda body: (
                kube.is_settled(body) and body.get("status") == status
                if status is not None
                else kube.is_settled(body)
            ),
            timeout=timeout,
        )

    def wait_until_gone(self, name: str, *, timeout: float = 30) -> None:
        self.cluster.wait(self.resource, self.namespace, name, lambda body: body is None, timeout=timeout)


@pytest.fixture
def shelf(cluster: kube.Cluster, parcels: kube.Resource, namespace: str) -> Shelf:
    return Shelf(cluster, parcels, namespace)


class Kind:
    """A kind of a test's own, which comes and goes as the test wants."""

    def __init__(self, cluster: kube.Cluster, group: str) -> None:
        self.cluster, self.group = cluster, group
        self.crd = crd("latecomers", "Latecomer", group=group)
        self.resource: kube.Resource | None = None

    def install(self, **names: object) -> None:
        self.crd["spec"]["names"].update(names)
        self.resource = self.cluster.create_crd(self.crd)

    def change(self, patch: kube.Object) -> None:
        self.cluster.patch(kube.CRDS, None, self.crd["metadata"]["name"], patch)

    def remove(self) -> None:
        name = self.crd["metadata"]["name"]
        self.cluster.delete(kube.CRDS, None, name)
        self.cluster.wait(kube.CRDS, None, name, lambda found: found is None)

    def create(self, namespace: str, name: str, spec: kube.Object | None = None) -> kube.Object:
        assert self.resource is not None
        body = {"apiVersion": f"{self.group}/v1", "kind": "Latecomer", "metadata": {"name": name}}
        return self.cluster.create(self.resource, namespace, {**body, "spec": spec or {}})


@pytest.fixture
def later_kind(cluster: kube.Cluster) -> Iterator[Kind]:
    """A kind that does not exist yet, in a separate API group."""
    kind = Kind(cluster, f"g{secrets.token_hex(3)}.testing.kopf.dev")
    yield kind
    cluster.delete(kube.CRDS, None, kind.crd["metadata"]["name"])
