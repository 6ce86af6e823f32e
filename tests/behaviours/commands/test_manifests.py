"""`kopf manifests`: the objects of a deployment, their files, and their comparison with those in a folder."""

import datetime
import functools
import json
import pathlib
import re
import subprocess
import threading

import pytest
import yaml
from kopf._runtime.client.sync_api import SyncApi
from kopf.testing import Cluster

from tests.support.accounts import grant, write_kubeconfig
from tests.support.inspected import FINALIZER, PEERING, WIDGETS, call
from tests.support.programs import program

pytestmark = pytest.mark.kopf_embedded_only
ROOT = pathlib.Path(__file__).resolve().parents[3]

EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "examples/30-deployment"
OPERATOR = """
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.posting.enabled = False

@kopf.on.create("widgets")
def publish(**_): ...
"""
NAMESPACED_PEERING = (
    PEERING.replace("clusterkopfpeering", "kopfpeering")
    .replace("ClusterKopfPeering", "KopfPeering")
    .replace("scope: Cluster", "scope: Namespaced")
    .replace("metadata: {{name: default}}", "metadata: {{name: default, namespace: default}}")
)
WEBHOOK = "@kopf.on.validate('widgets')\ndef check(**_): ...\n"


@pytest.fixture
def cluster(kopf_cluster):
    kopf_cluster.apply(WIDGETS)
    return kopf_cluster


@pytest.fixture
def operator(tmp_path):
    path = tmp_path / "sites.py"
    path.write_text(OPERATOR)
    return path


@pytest.fixture
def run(cluster, operator):
    return functools.partial(call, cluster, "manifests", str(operator), "-A", "--name=mine")


def objects(result):
    assert result.exit_code == 0, result.output
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(result.stdout)}


def test_the_example_of_a_deployment_has_the_rules_of_the_command(kopf_cluster):
    def permissions(role):
        return {
            (group, resource, verb)
            for rule in role["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }

    kopf_cluster.apply(EXAMPLE / "crd.yaml")
    files = str(EXAMPLE / "example.py")
    found = objects(call(kopf_cluster, "manifests", files, "-A", "--name=site-operator"))
    bodies = yaml.safe_load_all((EXAMPLE / "rbac.yaml").read_text())
    [role] = [body for body in bodies if body["kind"] == "ClusterRole"]
    assert permissions(role) == permissions(found["ClusterRole", "site-operator"])


def test_the_pods_are_restricted_and_know_their_names(run):
    found = objects(run("--image=x"))
    assert [kind for kind, _ in found] == [
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Deployment",
        "Service",
    ]
    pod = found["Deployment", "mine"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    [container] = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    paths = {item["name"]: item["valueFrom"]["fieldRef"]["fieldPath"] for item in container["env"]}
    assert paths == {
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        "POD_UID": "metadata.uid",
        "POD_ID": "metadata.name",
    }
    assert container["resources"]["limits"] == {"memory": "256Mi"}
    assert found["Service", "mine"]["spec"]["selector"] == {"app": "mine"}


def test_the_rules_have_comments_with_their_reasons(run):
    text = run().stdout
    assert "'#'" not in text
    assert "# publish() (sites.py)\n- apiGroups:\n  - behaviours.example.com\n" in text, text
    assert "# unless settings.scanning.disabled is True\n- apiGroups:\n  - apiextensions.k8s.io\n" in text
    assert text == run().stdout


@pytest.mark.parametrize(
    ("monitor", "kinds"),
    [
        ("none", set()),
        ("service", {"Service"}),
        ("servicemonitor", {"Service", "ServiceMonitor"}),
        ("podmonitor", {"PodMonitor"}),
    ],
)
def test_prometheus_finds_the_pods(run, monitor, kinds):
    found = objects(run("--image=x", f"--monitor={monitor}", "--rules", "--dashboard"))
    names = {kind for kind, _ in found} & {"Service", "ServiceMonitor", "PodMonitor"}
    assert names == kinds
    assert found["PrometheusRule", "mine"]["spec"]["groups"]
    dashboard = found["ConfigMap", "mine-dashboard"]
    assert json.loads(dashboard["data"]["kopf.json"])["title"] == "Kopf operator"
    assert dashboard["metadata"]["labels"] == {"grafana_dashboard": "1"}


def test_the_secret_of_webhooks_is_limited_by_its_name_and_namespace(run, operator):
    server = "    settings.admission.server = kopf.WebhookServer(secret='SECRET')\n    settings.posting"
    for secret, namespace in {"ours": "default", "elsewhere/ours": "elsewhere"}.items():
        source = OPERATOR.replace("    settings.posting", server.replace("SECRET", secret))
        operator.write_text(source + WEBHOOK)
        rules = [
            rule
            for one in yaml.safe_load_all(run().stdout)
            if one["kind"] == "Role" and one["metadata"]["namespace"] == namespace
            for rule in one["rules"]
            if rule["resources"] == ["secrets"]
        ]
        assert rules == [
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
            {
                "apiGroups": [""],
                "resources": ["secrets"],
                "resourceNames": ["ours"],
                "verbs": ["get", "patch"],
            },
        ]


def test_webhooks_have_a_port_a_service_and_a_way_in(run, operator):
    operator.write_text(OPERATOR + WEBHOOK)
    options = ("--image=x", "--network-policy=10.0.0.1/32", "--monitoring-namespace=prometheus")
    found = objects(run(*options))
    [container] = found["Deployment", "mine"]["spec"]["template"]["spec"]["containers"]
    assert container["ports"][1] == {"name": "webhook", "containerPort": 9443}
    assert found["Service", "mine-webhook"]["spec"]["ports"][0]["targetPort"] == "webhook"
    policy = found["NetworkPolicy", "mine"]["spec"]
    scraping, webhook = policy["ingress"]
    [source] = scraping["from"]
    assert source["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "prometheus"}
    assert webhook == {"ports": [{"port": "webhook"}]}
    assert policy["egress"][1]["to"] == [{"ipBlock": {"cidr": "10.0.0.1/32"}}]


def test_the_objects_are_accepted_twice(cluster, run):
    """DEP-1, for the kinds that each cluster has."""
    options = ("--image=x", "--replicas=2", "--leader-elect", "--dashboard", "--network-policy=10.0.0.1/32")
    result = run(*options)
    for _ in range(2):
        cluster.apply(result.stdout)
    assert {kind for kind, _ in objects(result)} >= {"PodDisruptionBudget", "NetworkPolicy", "ConfigMap"}
    assert cluster.get("deployments", "mine")["spec"]["replicas"] == 2


def monitoring_crds():
    """The CRDs of the Prometheus operator, as far as their fields are used."""
    text, port = {"type": "string"}, {"port": {"type": "string"}, "path": {"type": "string"}}
    labels = {"type": "object", "additionalProperties": text}

    def structure(**properties):
        return {"type": "object", "properties": properties}

    def listed(**properties):
        return {"type": "array", "items": structure(**properties)}

    selector = structure(matchLabels=labels)
    alert = {"alert": text, "expr": text, "for": text, "labels": labels, "annotations": labels}
    specs = {
        "ServiceMonitor": structure(selector=selector, endpoints=listed(**port)),
        "PodMonitor": structure(selector=selector, podMetricsEndpoints=listed(**port)),
        "PrometheusRule": structure(groups=listed(name=text, rules=listed(**alert))),
    }
    for kind, spec in specs.items():
        names = {"kind": kind, "plural": f"{kind.lower()}s", "singular": kind.lower()}
        schema = {"openAPIV3Schema": structure(spec=spec)}
        version = {"name": "v1", "served": True, "storage": True, "schema": schema}
        group = "monitoring.coreos.com"
        yield {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{kind.lower()}s.{group}"},
            "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
        }


EXAMPLES = [
    "04-deletion",
    "08-daemon",
    "10-peering",
    "14-admission",
    "15-reconciler",
    "16-config-map-generator",
]
COMBINATIONS = [
    (),
    ("--monitor=none", "--rules"),
    ("--monitor=servicemonitor", "--network-policy=10.0.0.1/32", "--dashboard"),
    ("--monitor=podmonitor", "--rules", "--leader-elect"),
    ("--monitor=servicemonitor", "--rules", "--leader-elect", "--replicas=3"),
    ("--monitor=podmonitor", "--dashboard", "--network-policy=10.0.0.0/8", "--network-policy=fd00::/8"),
    ("--monitor=service", "--leader-elect", "--replicas=2", "--rules", "--dashboard"),
    ("--uninstall-job",),
    ("--uninstall-job", "--leader-elect"),
]


@pytest.mark.parametrize("scope", ["-A", "--namespace=default"])
@pytest.mark.parametrize("example", EXAMPLES)
def test_the_objects_of_all_options_are_accepted_strictly_and_twice(kopf_cluster, example, scope):
    """DEP-1, on the embedded server."""
    folder = ROOT / "examples" / example
    for path in sorted(folder.rglob("*crd*.yaml")):
        kopf_cluster.apply(path)
    for crd in monitoring_crds():
        kopf_cluster.apply(crd)
    api = kopf_cluster.api.using(validation="strict")
    kinds = set()
    for number, options in enumerate(COMBINATIONS):
        args = (scope, f"--name=mine-{number}", "--image=x", *options)
        result = call(kopf_cluster, "manifests", str(folder / "example.py"), *args)
        found = objects(result).values()
        kinds |= {body["kind"] for body in found}
        applied = [api.apply(body, force=True).metadata["resourceVersion"] for body in found]
        assert [api.apply(body).metadata["resourceVersion"] for body in found] == applied
    optional = {
        "ServiceMonitor",
        "PodMonitor",
        "PrometheusRule",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Job",
    }
    assert kinds >= {"ServiceAccount", "Deployment", "Service", "ConfigMap", "ClusterRole", *optional}


def test_a_base_for_kustomize_has_the_same_objects(run, tmp_path):
    """DEP-4, without helm."""
    kubectl = program("kubectl")
    options = ("--image=x", "--replicas=2", "--leader-elect", "--rules", "--network-policy=10.0.0.1/32")
    assert run(*options, "--format=kustomize", f"--output={tmp_path / 'base'}").exit_code == 0
    command = [kubectl, "kustomize", tmp_path / "base"]
    built = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (built.returncode, built.stderr) == (0, "")
    found = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(built.stdout)}
    assert found == objects(run(*options))


def test_the_page_shows_the_printed_differences(tmp_path, kopf_cluster):
    """DEP-7"""
    page = (ROOT / "docs/deployment.md").read_text()
    [shown] = re.findall(r"^```diff\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    folder, example = tmp_path / "base", tmp_path / "example.py"
    kopf_cluster.apply(ROOT / "examples/30-deployment/crd.yaml")
    code = (ROOT / "examples/30-deployment/example.py").read_text()
    args = ("manifests", str(example), "-A", "--image=x", "--format=kustomize")
    example.write_text(code)
    assert call(kopf_cluster, *args, f"--output={folder}").exit_code == 0
    example.write_text(code + '\n\n@kopf.on.event("pods")\ndef watch(**_): ...\n')
    printed = call(kopf_cluster, *args, f"--check={folder}").stdout.replace(f"{tmp_path}/", "deploy/")
    lines = [line for line in printed.splitlines() if line[:1] in "+-"]
    assert lines == shown.splitlines()


def test_crds_and_further_rules_are_added(run, tmp_path):
    crds = tmp_path / "crds"
    crds.mkdir()
    (crds / "widgets.yaml").write_text(WIDGETS + "---\napiVersion: v1\nkind: ConfigMap\n")
    rule = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["create"]}
    extra = tmp_path / "extra.yaml"
    extra.write_text(yaml.safe_dump([rule]))
    result = run(f"--crds={crds}", f"--extra-rules={extra}")
    found = objects(result)
    assert next(iter(found)) == ("CustomResourceDefinition", "widgets.behaviours.example.com")
    assert found["ClusterRole", "mine"]["rules"][-1] == rule
    assert "# added by --extra-rules\n" in result.stdout
    extra.write_text("no rules")
    result = run(f"--extra-rules={extra}")
    assert result.exit_code == 1 and "must have a list of rules" in result.output


def test_further_rules_of_a_namespaced_operator_stay_in_its_namespace(cluster, operator, tmp_path):
    rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    extra = tmp_path / "extra.yaml"
    args = (cluster, "manifests", str(operator), "-n", "default", "--name=mine", f"--extra-rules={extra}")
    extra.write_text(yaml.safe_dump([rule]))
    found = objects(call(*args))
    assert rule not in found["ClusterRole", "mine"]["rules"]
    assert rule in found["Role", "mine"]["rules"]
    extra.write_text(yaml.safe_dump({"kind": "ClusterRole", "rules": [rule]}))
    found = objects(call(*args))
    assert rule in found["ClusterRole", "mine"]["rules"]
    assert rule not in found["Role", "mine"]["rules"]


def test_event_handlers_with_a_patch_may_write(run, operator):
    watching = "@kopf.on.event('pods')\ndef watch(**_): ...\n"
    for code, verbs in ((watching, []), (watching.replace("**_", "patch, **_"), ["patch"])):
        operator.write_text(OPERATOR + code)
        rules = {
            tuple(one["resources"]): one["verbs"] for one in objects(run())["ClusterRole", "mine"]["rules"]
        }
        assert rules["pods",] == ["list", "watch", *verbs]
        assert rules.get(("pods/status",), []) == verbs


def test_a_folder_is_compared_with_the_present_manifests(run, operator, tmp_path):
    """DEP-3"""
    folder = tmp_path / "base"
    options = ("--image=x", "--format=kustomize")
    assert run(*options, f"--output={folder}").exit_code == 0
    files = {path.name for path in folder.iterdir()}
    assert files == {
        "serviceaccount-mine.yaml",
        "clusterrole-mine.yaml",
        "clusterrolebinding-mine.yaml",
        "deployment-mine.yaml",
        "service-mine.yaml",
        "kustomization.yaml",
    }
    base = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert {*base["resources"], "kustomization.yaml"} == files
    assert run(*options, f"--check={folder}").exit_code == 0
    operator.write_text(OPERATOR + "@kopf.on.event('pods')\ndef watch(**_): ...\n")
    result = run(*options, f"--check={folder}")
    assert result.exit_code == 3
    assert "+  - pods\n" in result.stdout and "+# watch() (sites.py)\n" in result.stdout
    # Generated files that are not needed any more are removed, but none of the user.
    (folder / "patch.yaml").write_text("{}")
    assert run(*options, "--monitor=none", f"--output={folder}").exit_code == 0
    assert {path.name for path in folder.iterdir()} == {*files, "patch.yaml"} - {"service-mine.yaml"}


def test_files_that_were_not_generated_are_not_replaced(run, tmp_path):
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "kustomization.yaml").write_text("resources: [mine.yaml]\n")
    (folder / "clusterrole-mine.yaml").write_text("")
    result = run("--format=kustomize", f"--output={folder}")
    assert result.exit_code == 2
    output = " ".join(result.output.split())
    assert "has not generated, and would replace: clusterrole-mine.yaml, kustomization.yaml." in output
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "kustomization.yaml": "resources: [mine.yaml]\n",
        "clusterrole-mine.yaml": "",
    }
    assert run(f"--output={folder}").exit_code == 0
    assert run(f"--output={folder}").exit_code == 0
    assert len(list(folder.iterdir())) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--format=kustomize",), "A base for kustomize has several files"),
        (("--network-policy=example.com",), "'example.com' is not a network such as 10.0.0.1/32"),
        (("--uninstall-job",), "needs the image of the operator"),
    ],
)
def test_wrong_usage_is_explained(run, options, message):
    result = run(*options)
    assert result.exit_code == 2
    assert message in result.output


def test_the_job_of_the_removal_has_enough_permissions(operator, tmp_path):
    with Cluster("embedded", access=True) as cluster:
        cluster.apply(WIDGETS)
        metadata = {"name": "home", "finalizers": [FINALIZER]}
        cluster.create({"apiVersion": "behaviours.example.com/v1", "kind": "Widget", "metadata": metadata})
        found = objects(
            call(cluster, "manifests", str(operator), "-A", "--name=mine", "--image=x", "--uninstall-job")
        )
        job = found["Job", "mine-uninstall"]["spec"]["template"]["spec"]
        assert job["serviceAccountName"] == "mine-uninstall"
        command = job["containers"][0]["command"]
        assert command == ["kopf", "uninstall", "--yes", "--all-namespaces", str(operator)]
        grant(cluster, found["ClusterRole", "mine-uninstall"]["rules"])
        write_kubeconfig(cluster, tmp_path / "config")
        environment = {"KUBECONFIG": str(tmp_path / "config")}
        result = call(cluster, *command[1:], environment=environment)
        assert result.exit_code == 0, result.output
        assert "finalizers" not in cluster.get("widgets", "home")["metadata"]


def test_the_job_of_the_removal_may_read_objects_that_others_change(operator, tmp_path):
    with Cluster("embedded", access=True) as cluster:
        cluster.apply(WIDGETS)
        metadata = {"name": "home", "finalizers": [FINALIZER]}
        cluster.create({"apiVersion": "behaviours.example.com/v1", "kind": "Widget", "metadata": metadata})
        options = ("-A", "--name=mine", "--image=x", "--uninstall-job")
        found = objects(call(cluster, "manifests", str(operator), *options))
        grant(cluster, found["ClusterRole", "mine-uninstall"]["rules"])
        write_kubeconfig(cluster, tmp_path / "config")
        changed, original = threading.Event(), SyncApi.patch

        def patch(self, *args, **kwargs):
            if not changed.is_set():
                changed.set()
                cluster.patch("widgets", "home", {"metadata": {"labels": {"by": "another-controller"}}})
            return original(self, *args, **kwargs)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(SyncApi, "patch", patch)
            environment = {"KUBECONFIG": str(tmp_path / "config")}
            result = call(cluster, "uninstall", "--yes", "-A", str(operator), environment=environment)
        assert changed.is_set()
        assert result.exit_code == 0, result.output
        assert "finalizers" not in cluster.get("widgets", "home")["metadata"]


def test_the_job_of_a_namespaced_operator_notices_a_live_one(operator, tmp_path):
    with Cluster("embedded", access=True) as cluster:
        cluster.apply(WIDGETS)
        now = datetime.datetime.now(datetime.UTC).isoformat()
        cluster.apply(NAMESPACED_PEERING.format(age=now))
        metadata = {"name": "home", "finalizers": [FINALIZER]}
        cluster.create({"apiVersion": "behaviours.example.com/v1", "kind": "Widget", "metadata": metadata})
        options = ("-n", "default", "--name=mine", "--image=x", "--uninstall-job")
        found = objects(call(cluster, "manifests", str(operator), *options))
        command = found["Job", "mine-uninstall"]["spec"]["template"]["spec"]["containers"][0]["command"]
        for body in found.values():
            cluster.create(body)
        write_kubeconfig(cluster, tmp_path / "config", "mine-uninstall")
        result = call(cluster, *command[1:], environment={"KUBECONFIG": str(tmp_path / "config")})
        assert result.exit_code == 3, result.output
        assert cluster.get("widgets", "home")["metadata"]["finalizers"] == [FINALIZER]


def test_the_job_of_an_elected_operator_notices_its_leader(run):
    found = objects(run("--image=x", "--uninstall-job", "--leader-elect"))
    [container] = found["Job", "mine-uninstall"]["spec"]["template"]["spec"]["containers"]
    assert "--lease=mine" in container["command"] and "--leader-elect" not in container["command"]
    [rule] = [one for one in found["Role", "mine-uninstall"]["rules"] if one["resources"] == ["leases"]]
    assert (rule["resourceNames"], rule["verbs"]) == (["mine"], ["get", "delete"])
