"""Each example works as its README describes, on the real control plane, with the files of the reader."""

import json
import pathlib
import signal
import socket
import urllib.request

import pytest
import yaml

from tests.support import cluster as kube
from tests.support.fixtures import Shelf

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
FOLDERS = sorted(path.parent.name for path in EXAMPLES.glob("*/example.py"))


class Stage:
    """One example, with the CRD and the object from its folder in the cluster."""

    def __init__(self, folder: pathlib.Path, cluster: kube.Cluster, namespace: str) -> None:
        self.folder, self.cluster = folder, cluster
        crd = yaml.safe_load((folder / "crd.yaml").read_text())
        self.shelf = Shelf(cluster, cluster.create_crd(crd), namespace)
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
    # Kopf 1.45 logs the key alone.
    run.wait_for_log(r"Handler 'remind' failed with an exception and will stop now: (KeyError: )?'phone'")


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


@example("06-subhandlers")
def test_subhandlers(operator, stage):
    run = operator(files=(stage.file,))
    stage.apply()
    status = {"plan/lisbon": {"room": 6, "calls": 1}, "plan/porto": {"room": 5, "calls": 3}}
    stage.shelf.wait_until_handled(stage.name, status=status)
    run.wait_for_log(r"Handler 'plan/atlantis' failed permanently: There are no hotels\.")
    run.wait_for_log(r"Creation is processed: 1 succeeded; 0 failed\.")
    stage.shelf.patch(stage.name, {"spec": {"stops": ["lisbon"]}})
    run.wait_for_log(r"The old rooms are cancelled\.")
    run.wait_for_log(r"The new rooms are booked\.")
    run.wait_for_log(r"From 3 stops to 1\.")


@example("07-storages")
def test_storages(operator, stage):
    run = operator(files=(stage.file,))
    stage.apply()
    last = '{"spec":{"content":"umbrella"}}'
    diary = {"pages": 2, "last": last, "progress": {}}
    body = stage.shelf.wait(stage.name, lambda body: body.get("status") == {"lock": "locked", "diary": diary})
    assert "annotations" not in body["metadata"]
    stage.shelf.patch(stage.name, {"spec": {"content": "hat"}})
    run.wait_for_log(r"umbrella => hat")


@pytest.fixture
def peerings(cluster):
    """The CRDs of peerings from the example's file; deleted afterwards, since other tests require their
    absence."""
    crds = list(yaml.safe_load_all((EXAMPLES / "10-peering/peering-crds.yaml").read_text()))
    peering = yaml.safe_load((EXAMPLES / "10-peering/peering.yaml").read_text())
    resources = [cluster.create_crd(crd) for crd in crds]
    yield next(resource for resource in resources if not resource.namespaced), peering
    for crd in crds:
        cluster.delete(kube.CRDS, None, crd["metadata"]["name"])
    for crd in crds:
        cluster.wait(kube.CRDS, None, crd["metadata"]["name"], lambda body: body is None)


@example("10-peering")
def test_peering(operator, stage, cluster, peerings):
    resource, peering = peerings
    # Its own object, as that of the default name would pause the operators of other tests.
    cluster.create(resource, None, {**peering, "metadata": {"name": stage.shelf.namespace}})
    where = {"scope": ("-A",), "files": (stage.file,)}
    run = operator(None, "--peering", stage.shelf.namespace, **where)
    run.wait_for_log("My priority is 0")
    run.wait_for_log(r"Keep-alive in \S+ cluster-wide: ok")
    developer = operator(None, "--dev", "--peering", stage.shelf.namespace, **where)
    run.wait_for_log("Pausing operations in favour of .*priority=666")
    stage.apply()
    developer.wait_for_log("Working at the reception")
    stage.shelf.wait_until_handled(stage.name)
    developer.stop()
    run.wait_for_log("Resuming operations after the pause")
    run.stop()


@example("11-posting")
def test_posting(operator, stage, cluster):
    run = operator(files=(stage.file,))
    stage.apply()
    stage.shelf.wait_until_handled(stage.name)
    run.stop()
    events = kube.Resource("", "v1", "events")
    found = cluster.request("GET", events.path(stage.shelf.namespace))["items"]
    assert {(item["type"], item["reason"], item["message"]) for item in found} == {
        ("Normal", "Sorted", "The letter goes to room 12."),
        ("Error", "LookupError", "Cannot deliver: no answer in room 12"),
        ("Warning", "Kept", "The letter is kept at the desk."),
    }


@example("12-probes")
def test_probes(operator, stage):
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/healthz"
    run = operator(None, "--liveness", url, files=(stage.file,))
    stage.apply()
    run.wait_for_log("Starting the watch-stream for boilers")
    run.wait_for_log("Serving health status")
    with urllib.request.urlopen(url, timeout=60) as response:
        assert set(json.loads(response.read())) == {"heated", "since"}


@example("13-indexing")
def test_indexing(operator, stage):
    operator(files=(stage.file,))
    stage.apply()
    stage.shelf.wait_until_handled(stage.name, status={"move_in/spec.room": {"shares with": []}})
    stage.shelf.create("erin", {"room": 12})
    stage.shelf.wait_until_handled("erin", status={"move_in/spec.room": {"shares with": ["dave"]}})


@example("20-testing")
def test_testing(operator, stage):
    run = operator(files=(stage.file,))
    stage.apply()
    stage.shelf.wait_until_handled(stage.name, status={"check": {"confirmed": 6, "attempts": 1}})
    run.wait_for_log(r"6 bottles are confirmed\.")


def test_every_example_is_complete_and_tested():
    assert len(FOLDERS) >= 5
    text = "".join(path.read_text() for path in pathlib.Path(__file__).parent.glob("test_*.py"))
    for name in FOLDERS:
        assert f'"{name}"' in text, f"{name} has no test"
        assert {path.name for path in (EXAMPLES / name).iterdir()} >= {
            "example.py",
            "README.md",
            "crd.yaml",
            "obj.yaml",
        }
        readme = (EXAMPLES / name / "README.md").read_text()
        assert f"kopf run -A examples/{name}/example.py" in readme


@example("08-daemon")
def test_daemon(operator, stage):
    run = operator(files=(stage.file,))
    stage.body["spec"]["length"] = 2
    stage.apply()
    stage.shelf.wait(stage.name, lambda body: body.get("status", {}).get("burn") == {"burnt": 2})
    run.wait_for_log(r"2 cm are burnt; asked to stop: None\.")
    # Another one is deleted while it burns.
    stage.body["metadata"]["name"] = "aisle"
    stage.body["spec"]["length"] = 1000
    stage.apply()
    stage.shelf.wait("aisle", lambda body: body["metadata"].get("finalizers"))
    stage.shelf.delete("aisle")
    stage.shelf.wait_until_gone("aisle")
    run.wait_for_log(r"cm are burnt; asked to stop: .*RESOURCE_DELETED")


@example("09-timers")
def test_timers(operator, stage):
    run = operator(files=(stage.file,))
    stage.apply()
    stage.shelf.wait(stage.name, lambda body: body.get("status", {}).get("temperature") == 200)
    # The object does not change for 10 seconds.
    stage.shelf.wait(stage.name, lambda body: body["spec"]["target"] == 0)
    run.wait_for_log(r"The target is 0 degrees now, not 200\.")


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
    for attempt in range(100):  # the API server calls a new webhook with a delay
        stage.body = {**body, "metadata": {"name": f"probe-{attempt}"}}
        stage.apply()
        if stage.shelf.get(f"probe-{attempt}")["spec"].get("sugar"):
            break
    stage.body = body
    stage.apply()
    assert stage.shelf.get("birthday")["spec"] == {"minutes": 55, "sugar": "100g"}
    with pytest.raises(kube.ApiError, match="It would burn"):
        stage.shelf.patch("birthday", {"spec": {"minutes": 61}})
    stage.shelf.patch("birthday", {"metadata": {"labels": {"wedding": ""}}})
    with pytest.raises(kube.ApiError, match="may throw away a wedding cake"):
        stage.shelf.delete("birthday")
    assert run.stop() == 0
    stage.shelf.delete("birthday")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@example("31-embedding")
def test_embedding(operator, stage, signum):
    run = operator(script=stage.file)
    run.wait_for_log(r"The operator is ready; the program goes on\.")
    stage.apply()
    stage.shelf.wait_until_handled(stage.name, status={"note": "noted"})
    run.wait_for_log(r"Doing first: buy some milk")
    assert run.stop(signum) == 0
    assert "The end: 1 done." in run.log


@example("15-reconciler")
def test_reconciler(operator, stage, cluster, namespace):
    def ready(body):
        conditions = body.get("status", {}).get("conditions", [])
        return [(item["status"], item["reason"]) for item in conditions if item["type"] == "Ready"]

    operator(files=(stage.file,))
    stage.apply()
    stage.shelf.wait(stage.name, lambda body: ready(body) == [("False", "NoSecret")])
    secret = yaml.safe_load((stage.folder / "secret.yaml").read_text())
    cluster.create(kube.Resource("", "v1", "secrets"), namespace, secret)
    stage.shelf.wait(stage.name, lambda body: ready(body) == [("True", "Applied")])
    config_maps = kube.Resource("", "v1", "configmaps")
    cluster.patch(config_maps, namespace, stage.name, {"data": {"greeting": "boo"}})
    cluster.wait(
        config_maps, namespace, stage.name, lambda body: body and body["data"] == {"greeting": "hello"}
    )
    cluster.delete(config_maps, namespace, stage.name)
    cluster.wait(
        config_maps, namespace, stage.name, lambda body: body and body["data"] == {"greeting": "hello"}
    )


@example("16-config-map-generator")
def test_config_map_generator(operator, stage, cluster, namespace):
    operator(files=(stage.file,))
    stage.apply()
    config_maps = kube.Resource("", "v1", "configmaps")
    name, content = f"{stage.name}-configmap", {"content": "hello"}
    cluster.wait(config_maps, namespace, name, lambda body: body and body["data"] == content)
    cluster.delete(config_maps, namespace, name)
    cluster.wait(config_maps, namespace, name, lambda body: body and body["data"] == content)


@example("17-cron-jobs")
def test_cron_jobs(operator, stage):
    """The schedule itself is tested with virtual time (tests/behaviours/reconcile/test_ports.py)."""
    run = operator(files=(stage.file,))
    stage.body["spec"]["schedule"] = "every tuesday"
    stage.apply()
    run.wait_for_log(r"every tuesday")
    stage.shelf.patch(stage.name, {"spec": {"schedule": "* * * * *", "suspend": False}})
    stage.shelf.wait(stage.name, lambda body: "active" in body.get("status", {}))
