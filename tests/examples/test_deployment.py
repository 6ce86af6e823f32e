"""The example of a deployment: its manifests are accepted, and its permissions are enough, and not more."""

import pathlib
import re

import pytest
import yaml

from tests.support import cluster as kube
from tests.support.fixtures import Shelf

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "30-deployment"

PLURALS = {
    "Namespace": kube.NAMESPACES,
    "ServiceAccount": kube.Resource("", "v1", "serviceaccounts"),
    "ClusterRole": kube.Resource("rbac.authorization.k8s.io", "v1", "clusterroles", namespaced=False),
    "ClusterRoleBinding": kube.Resource(
        "rbac.authorization.k8s.io", "v1", "clusterrolebindings", namespaced=False
    ),
    "Deployment": kube.Resource("apps", "v1", "deployments"),
}


@pytest.fixture
def deployed(cluster):
    """Everything of the folder is in the cluster; the shelf is of its sites."""
    made = []
    for name in ["rbac.yaml", "deployment.yaml"]:
        for body in yaml.safe_load_all((FOLDER / name).read_text()):
            namespace = body["metadata"].get("namespace")
            cluster.create(PLURALS[body["kind"]], namespace, body)
            made.append((PLURALS[body["kind"]], namespace, body["metadata"]["name"]))
    crd = yaml.safe_load((FOLDER / "crd.yaml").read_text())
    sites = cluster.create_crd(crd)
    yield Shelf(cluster, sites, "site-operator")
    cluster.delete(kube.CRDS, None, crd["metadata"]["name"])
    for resource, namespace, name in reversed(made):
        cluster.delete(resource, namespace, name)
    cluster.wait(kube.NAMESPACES, None, "site-operator", lambda found: found is None)


def test_permissions_of_the_deployment_are_enough(operator, cluster, control_plane, deployed):
    path = PLURALS["ServiceAccount"].path("site-operator", "site-operator", "token")
    kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    token = cluster.request("POST", path, {**kind, "spec": {}})["status"]["token"]
    run = operator(
        files=(str(FOLDER / "example.py"),),
        scope=("-A",),
        kubeconfig=control_plane.write_kubeconfig("site-operator", token=token),
    )
    body = yaml.safe_load((FOLDER / "obj.yaml").read_text())
    cluster.create(deployed.resource, "site-operator", body)
    deployed.wait_until_handled("home", status={"count": 3})
    deployed.patch("home", {"spec": {"text": "Bye!"}})
    deployed.wait("home", lambda body: body["status"].get("count/spec.text") == 1)
    events = kube.Resource("", "v1", "events")

    def messages():
        items = cluster.request("GET", events.path("site-operator"))["items"]
        return {item["message"] for item in items if item["reportingComponent"] == "site-operator"}

    assert run.stop() == 0  # events are posted in the background, and before the end
    assert messages() == {"There are 3 words.", "There are 1 words."}
    assert "Forbidden" not in run.log
    assert "Not enough permissions" not in run.log


def test_less_permissions_are_not_enough(operator, cluster, control_plane, deployed):
    role = PLURALS["ClusterRole"]
    rules = cluster.get(role, None, "site-operator")["rules"]
    less = [{**rule, "verbs": [verb for verb in rule["verbs"] if verb != "patch"]} for rule in rules]
    less = [rule for rule in less if rule["verbs"]]
    cluster.patch(role, None, "site-operator", {"rules": less})
    path = PLURALS["ServiceAccount"].path("site-operator", "site-operator", "token")
    token = cluster.request("POST", path, {"spec": {}})["status"]["token"]
    run = operator(
        files=(str(FOLDER / "example.py"),),
        scope=("-A",),
        kubeconfig=control_plane.write_kubeconfig("site-operator", token=token),
    )
    cluster.create(deployed.resource, "site-operator", yaml.safe_load((FOLDER / "obj.yaml").read_text()))
    run.wait_for_log(r"403|[Ff]orbidden")
    cluster.patch(role, None, "site-operator", {"rules": rules})
    deployed.wait_until_handled("home", timeout=60)


def test_the_page_shows_the_files_as_they_are():
    page = (ROOT / "docs" / "deployment.md").read_text()
    blocks = {kind: text for kind, text in re.findall(r"^```(\w+)\n(.*?)^```", page, re.M | re.S)}
    assert blocks["dockerfile"] == (FOLDER / "Dockerfile").read_text()
    assert blocks["yaml"] == (FOLDER / "deployment.yaml").read_text()
