"""Each example does what its README says, on the real control plane, with a reader's files."""

import pathlib

import cluster as kube
import pytest
import yaml
from fixtures import Shelf

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
FOLDERS = sorted(path.parent.name for path in EXAMPLES.glob("*/example.py"))


class Stage:
    """One example with its CRD and its object in the cluster, as files in its folder say."""

    def __init__(self, folder: pathlib.Path, cluster: kube.Cluster, namespace: str) -> None:
        self.folder, self.cluster = folder, cluster
        crd = yaml.safe_load((folder / "crd.yaml").read_text())
        if cluster.find(kube.CRDS, None, crd["metadata"]["name"]) is None:
            cluster.create(kube.CRDS, None, crd)
        self.shelf = Shelf(cluster, cluster.await_crd(crd), namespace)
        self.body = yaml.safe_load((folder / "obj.yaml").read_text())
        self.name = self.body["metadata"]["name"]

    @property
    def file(self) -> str:
        return str(self.folder / "example.py")

    def apply(self) -> None:
        self.cluster.create(self.shelf.resource, self.shelf.namespace, self.body)


@pytest.fixture
def stage(request, cluster, namespace):
    stage = Stage(EXAMPLES / request.param, cluster, namespace)
    yield stage
    if stage.shelf.cluster.find(stage.shelf.resource, namespace, stage.name):
        stage.shelf.patch(stage.name, {"metadata": {"finalizers": None}})


def example(name):
    return pytest.mark.parametrize("stage", [name], indirect=True)


@example("01-minimal")
def test_minimal(operator, stage):
    run = operator(files=(stage.file,))
    stage.apply()
    stage.shelf.wait_until_handled(stage.name, status={"greet": {"greeting": "Welcome, Doctor alice!"}})
    run.wait_for_log(r"Welcome, Doctor alice!")


@example("02-retries")
def test_retries(operator, stage):
    run = operator(files=(stage.file,))
    stage.apply()
    stage.shelf.wait_until_handled(
        stage.name, status={"book": {"table": 7, "attempts": 3}, "remind": "Call 555-0100."}
    )
    run.wait_for_log(r"Handler 'book' failed temporarily: All tables are taken\.", count=2)
    stage.shelf.create("banquet", {"seats": 20})
    stage.shelf.wait_until_handled("banquet")
    run.wait_for_log(r"Handler 'book' failed permanently: There is no table for 20\.")
    run.wait_for_log(r"Handler 'remind' failed with an exception and will stop now: 'phone'")


@example("03-fields")
def test_fields(operator, stage):
    run = operator(files=(stage.file,))
    stage.apply()
    stage.shelf.wait_until_handled(stage.name)
    stage.shelf.patch(stage.name, {"spec": {"price": 12, "season": "winter"}})
    body = stage.shelf.wait_until_handled(stage.name, status={"reprice/spec.price": {"from": 10, "to": 12}})
    assert body["metadata"]["labels"] == {"price-trend": "up"}
    run.wait_for_log(r"update: change spec\.price: 10 => 12")
    run.wait_for_log(r"Soups go to the first page\.")


@example("04-deletion")
def test_deletion(operator, stage):
    run = operator(files=(stage.file,))
    stage.apply()
    stage.shelf.wait_until_handled(stage.name)
    stage.shelf.delete(stage.name)
    run.wait_for_log(r"Handler 'clean' failed temporarily: Room blue is occupied\.")
    assert stage.shelf.get(stage.name)["metadata"]["finalizers"] == ["kopf.zalando.org/KopfFinalizerMarker"]
    stage.shelf.patch(stage.name, {"spec": {"occupied": False}})
    stage.shelf.wait_until_gone(stage.name)
    run.wait_for_log(r"Room blue is clean after \d+ visit")
    run.wait_for_log(r"Goodbye, room blue\.")


@example("05-events")
def test_events(operator, stage):
    run = operator(files=(stage.file,))
    run.wait_for_log(r"The doorbell is plugged in\.")
    stage.apply()
    run.wait_for_log(r"front: (ADDED|EXISTING)")
    stage.shelf.patch(stage.name, {"spec": {"melody": "gong"}})
    run.wait_for_log(r"front: MODIFIED")
    stage.shelf.delete(stage.name)
    run.wait_for_log(r"front: DELETED")
    assert run.stop() == 0
    assert "Rings in total: 3." in run.log


def test_every_example_is_complete_and_tested():
    assert len(FOLDERS) >= 5
    text = pathlib.Path(__file__).read_text()
    for name in FOLDERS:
        assert f'@example("{name}")' in text, f"{name} has no test"
        assert {path.name for path in (EXAMPLES / name).iterdir()} >= {
            "example.py",
            "README.md",
            "crd.yaml",
            "obj.yaml",
        }
        readme = (EXAMPLES / name / "README.md").read_text()
        assert f"kopf run -A examples/{name}/example.py" in readme


@example("14-admission")
def test_admission(operator, stage, cluster):
    run = operator(files=(stage.file,))
    configurations = ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"]
    for plural in configurations:
        resource = kube.Resource("admissionregistration.k8s.io", "v1", plural, namespaced=False)
        cluster.wait(
            resource, None, "cakes.bakery.examples.kopf.dev", lambda config: config and config.get("webhooks")
        )
    body = stage.body
    for attempt in range(100):  # the server begins to ask a moment after it is told to
        stage.body = {**body, "metadata": {"name": f"probe-{attempt}"}}
        stage.apply()
        if stage.shelf.get(f"probe-{attempt}")["spec"].get("sugar"):
            break
    stage.body = body
    stage.apply()
    assert stage.shelf.get("birthday")["spec"] == {"minutes": 55, "sugar": "100g"}
    with pytest.raises(kube.Refused, match="It would burn"):
        stage.shelf.patch("birthday", {"spec": {"minutes": 61}})
    stage.shelf.patch("birthday", {"metadata": {"labels": {"wedding": ""}}})
    with pytest.raises(kube.Refused, match="may throw away a wedding cake"):
        stage.shelf.delete("birthday")
    assert run.stop() == 0
    stage.shelf.delete("birthday")
