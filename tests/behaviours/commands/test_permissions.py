"""Permissions of operators, as `kopf check` finds and `kopf manifests` prints them."""

import json
import os
import signal

import pytest
import yaml
from kopf.testing import Cluster

from tests.support.accounts import grant, write_kubeconfig
from tests.support.commands import environment, kopf, unwrapped

pytestmark = pytest.mark.kopf_embedded_only
OPERATOR = """
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.scanning.disabled = True
    settings.peering.name = "ours"
    settings.peering.mandatory = True
    settings.admission.server = kopf.WebhookServer()
    settings.admission.managed = "ours.example.com"

@kopf.on.validate("configmaps")
def validate(**_): ...
"""
PEERINGS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusterkopfpeerings.kopf.dev}
spec:
  group: kopf.dev
  scope: Cluster
  names: {plural: clusterkopfpeerings, kind: ClusterKopfPeering}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""
ADMISSION = "admissionregistration.k8s.io"
WEBHOOKS = ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"]
SERVERS = [
    "embedded",
    pytest.param(
        "assets",
        marks=pytest.mark.skipif("KUBEBUILDER_ASSETS" not in os.environ, reason="needs KUBEBUILDER_ASSETS"),
    ),
]


@pytest.fixture(params=SERVERS)
def server(request):
    options = {"access": True} if request.param == "embedded" else {}
    with Cluster(request.param, **options) as cluster:
        yield cluster


def rule(group, resources, verbs, names=()):
    limit = {"resourceNames": list(names)} if names else {}
    return {"apiGroups": [group], "resources": resources, "verbs": verbs, **limit}


def rules_for(peering, configuration):
    return [
        rule("kopf.dev", ["clusterkopfpeerings"], ["list", "watch"]),
        rule("kopf.dev", ["clusterkopfpeerings/status"], ["patch"], [peering]),
        rule(ADMISSION, WEBHOOKS, ["create"]),
        rule(ADMISSION, WEBHOOKS, ["patch"], [configuration]),
    ]


def test_permissions_for_the_used_names_are_enough(server, tmp_path):
    (tmp_path / "handlers.py").write_text(OPERATOR)
    server.apply(PEERINGS)
    grant(server, rules_for("ours", "ours.example.com"))
    write_kubeconfig(server, tmp_path / "config")
    done = kopf(tmp_path, "check", "handlers.py", "-A", "--kubeconfig", "config")
    assert done.stdout.endswith(": no problems.\n"), done.stdout + done.stderr
    assert done.returncode == 0
    grant(server, rules_for("theirs", "theirs.example.com"))
    done = kopf(tmp_path, "check", "handlers.py", "-A", "--kubeconfig", "config", "-o", "json")
    assert done.returncode == 1
    problems = json.loads(done.stdout)["problems"]
    missing = [problem["permission"] for problem in problems]
    assert [(item["verb"], item["resource"], item["name"]) for item in missing] == [
        *[("patch", plural, "ours.example.com") for plural in WEBHOOKS],
        ("patch", "clusterkopfpeerings/status", "ours"),
    ]
    assert problems[-1]["text"] == (
        "The permission to patch clusterkopfpeerings/status of kopf.dev named 'ours' is missing. "
        "It is needed unless settings.peering.standalone is True."
    )


def test_names_do_not_limit_what_kopf_reads_and_creates(server, tmp_path):
    (tmp_path / "handlers.py").write_text(OPERATOR)
    server.apply(PEERINGS)
    grant(
        server,
        [
            rule("kopf.dev", ["clusterkopfpeerings"], ["list", "watch"], ["ours"]),
            rule("kopf.dev", ["clusterkopfpeerings/status"], ["patch"]),
            rule(ADMISSION, WEBHOOKS, ["create"], ["ours.example.com"]),
            rule(ADMISSION, WEBHOOKS, ["patch"]),
        ],
    )
    write_kubeconfig(server, tmp_path / "config")
    done = kopf(tmp_path, "check", "handlers.py", "-A", "--kubeconfig", "config", "-o", "json")
    missing = [problem["permission"] for problem in json.loads(done.stdout)["problems"]]
    assert [(item["verb"], item["resource"], item["name"]) for item in missing] == [
        *[("create", plural, "") for plural in WEBHOOKS],
        ("list", "clusterkopfpeerings", ""),
        ("watch", "clusterkopfpeerings", ""),
    ]


FAILING = "import kopf\n@kopf.on.startup()\ndef configure(**_):\n    raise {}\n"


@pytest.mark.parametrize("error", ["ConnectionError('No database.')", "kopf.TemporaryError('No database.')"])
def test_failed_startup_handlers_are_not_retried_by_a_check(kopf_cluster, tmp_path, error):
    (tmp_path / "handlers.py").write_text(FAILING.format(error))
    config = str(kopf_cluster.kubeconfig)
    done = kopf(tmp_path, "check", "handlers.py", "-A", KUBECONFIG=config)
    kind = error.partition("(")[0].removeprefix("kopf.")
    assert f"- The startup handler 'configure' failed for good: {kind}: No database." in done.stdout
    assert done.returncode == 1


def test_an_interrupted_check_finds_nothing(kopf_cluster, tmp_path, command):
    source = "import asyncio, kopf, sys\n@kopf.on.startup()\nasync def configure(**_):\n"
    source += "    print('It has begun.', flush=True)\n    await asyncio.Event().wait()\n"
    (tmp_path / "handlers.py").write_text(source)
    env = environment(tmp_path, KUBECONFIG=str(kopf_cluster.kubeconfig))
    running = command("check", "handlers.py", "-A", environment=env)
    running.until("It has begun")
    assert running.stop(signal.SIGINT) == 1
    rest = "".join(iter(running.lines.get, None))
    assert "problem" not in rest and "Aborted!" in rest


def rules_of(text):
    """The verbs and names in the rules of the manifests, by resources and namespaces."""
    rules = {}
    for body in yaml.safe_load_all(text):
        for item in body.get("rules", ()):
            names = tuple(item.get("resourceNames", ()))
            rules[item["resources"][0], body["metadata"].get("namespace"), names] = item["verbs"]
    return rules


def test_the_settings_of_startup_handlers_are_in_the_manifests(server, tmp_path):
    source = OPERATOR + "\n@kopf.on.cleanup()\ndef clean_up(**_):\n    print('cleanup')\n"
    (tmp_path / "handlers.py").write_text(f"print('loaded')\n{source}")
    server.apply(PEERINGS)
    args = ("manifests", "handlers.py", "-A", "--name", "mine")
    done = kopf(tmp_path, *args, KUBECONFIG=str(server.kubeconfig))
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == ["loaded", "cleanup"]
    assert rules_of(done.stdout) == {
        ("clusterkopfpeerings", None, ()): ["list", "watch"],
        ("clusterkopfpeerings/status", None, ("ours",)): ["patch"],
        **{(plural, None, ()): ["create"] for plural in WEBHOOKS},
        **{(plural, None, ("ours.example.com",)): ["patch"] for plural in WEBHOOKS},
    }
    server.apply(done.stdout)
    write_kubeconfig(server, tmp_path / "config")
    done = kopf(tmp_path, "check", "handlers.py", "-A", "--kubeconfig", "config")
    assert done.stdout.endswith(": no problems.\n"), done.stdout + done.stderr


def test_manifests_without_startup_handlers_have_the_default_settings(kopf_cluster, tmp_path):
    kopf_cluster.apply(PEERINGS)
    source = OPERATOR + "\n@kopf.on.create('configmaps')\ndef create(**_): ...\n"
    (tmp_path / "handlers.py").write_text(source)
    args = ("manifests", "handlers.py", "-A", "--no-startup")
    done = kopf(tmp_path, *args, KUBECONFIG=str(kopf_cluster.kubeconfig))
    assert done.returncode == 0, done.stderr
    assert rules_of(done.stdout) == {
        ("configmaps", None, ()): ["list", "watch", "patch"],
        ("customresourcedefinitions", None, ()): ["list", "watch"],
        ("events", None, ()): ["create"],
        # Their name is unknown.
        **{(plural, None, ()): ["create", "patch"] for plural in WEBHOOKS},
    }


def test_admission_handlers_need_the_crds_and_the_namespaces(kopf_cluster, tmp_path):
    source = "import kopf\n@kopf.on.validate('configmaps')\ndef validate(**_): ...\n"
    (tmp_path / "handlers.py").write_text(source)
    config = str(kopf_cluster.kubeconfig)
    done = kopf(tmp_path, "manifests", "handlers.py", "-n", "default", KUBECONFIG=config)
    assert done.returncode == 0, done.stderr
    rules = rules_of(done.stdout)
    assert rules == {
        ("customresourcedefinitions", None, ()): ["list", "watch"],
        ("namespaces", None, ()): ["list", "watch"],
    }


CLUSTERWIDE = """
import kopf

@kopf.on.create("nodes")
def join(**_): ...

@kopf.on.event("persistentvolumes")
def watch(**_): ...
"""


def test_events_about_objects_without_a_namespace_are_in_that_of_the_operator(tmp_path):
    with Cluster("embedded", access=True) as cluster:
        for name in ("a", "home"):
            cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        (tmp_path / "handlers.py").write_text(CLUSTERWIDE)
        config = str(cluster.kubeconfig)
        args = ("manifests", "handlers.py", "--name=mine", "--home=home")
        done = kopf(tmp_path, *args, "-n", "a", KUBECONFIG=config)
        assert done.returncode == 0, done.stderr
        events = [key for key, verbs in rules_of(done.stdout).items() if key[0] == "events"]
        assert events == [("events", "a", ()), ("events", "home", ())]
        done = kopf(tmp_path, *args, "-A", KUBECONFIG=config)
        assert [key for key in rules_of(done.stdout) if key[0] == "events"] == [("events", None, ())]
        (tmp_path / "handlers.py").write_text(CLUSTERWIDE.replace("on.create", "on.event"))
        done = kopf(tmp_path, *args, "-n", "a", KUBECONFIG=config)
        assert [key for key in rules_of(done.stdout) if key[0] == "events"] == [("events", "a", ())]


def test_failed_startup_handlers_end_the_manifests(kopf_cluster, tmp_path):
    (tmp_path / "handlers.py").write_text(FAILING.format("ConnectionError('No database.')"))
    config = str(kopf_cluster.kubeconfig)
    done = kopf(tmp_path, "manifests", "handlers.py", "-A", KUBECONFIG=config)
    assert done.returncode == 1
    assert done.stdout == ""
    assert (
        "Error: The startup handler 'configure' failed for good: ConnectionError: No database. "
        "The operator has not started. With --no-startup, no startup and cleanup handlers are called, and "
        "the permissions are those of the default settings."
    ) in unwrapped(done.stderr)
    done = kopf(tmp_path, "manifests", "handlers.py", "-A", "--no-startup", KUBECONFIG=config)
    assert done.returncode == 0
    assert list(yaml.safe_load_all(done.stdout))


def test_manifests_need_the_crd_of_mandatory_peering(kopf_cluster, tmp_path):
    (tmp_path / "handlers.py").write_text(OPERATOR)
    done = kopf(
        tmp_path, "manifests", "handlers.py", "-n", "default", KUBECONFIG=str(kopf_cluster.kubeconfig)
    )
    assert done.returncode == 1
    assert "The cluster has no kopfpeerings, and peering is mandatory: apply their CRD first." in done.stderr
    assert done.stdout == ""


def test_the_existing_peering_object_is_in_the_manifests(kopf_cluster, tmp_path):
    kopf_cluster.apply(PEERINGS)
    kopf_cluster.create(
        {"apiVersion": "kopf.dev/v1", "kind": "ClusterKopfPeering", "metadata": {"name": "default"}}
    )
    (tmp_path / "handlers.py").write_text(OPERATOR.partition("@kopf.on.startup")[0])
    done = kopf(tmp_path, "manifests", "handlers.py", "-A", KUBECONFIG=str(kopf_cluster.kubeconfig))
    assert ("clusterkopfpeerings/status", None, ("default",)) in rules_of(done.stdout), done.stderr


def test_startup_handlers_that_need_a_cluster_are_named(kopf_cluster, tmp_path):
    source = (
        "import kopf\n@kopf.on.startup()\ndef configure(api, **_):\n    api.get('namespaces', 'default')\n"
    )
    (tmp_path / "handlers.py").write_text(source)
    config = kopf_cluster.kubeconfig.read_text()
    (tmp_path / "config").write_text(config.replace(kopf_cluster.url, "https://127.0.0.1:1"))
    done = kopf(tmp_path, "manifests", "handlers.py", "-A", "--kubeconfig", "config")
    assert done.returncode == 1
    error = unwrapped(done.stderr.partition("Error: ")[2])
    assert error.startswith("The startup handler 'configure' failed for good: ")
    assert "cannot reach https://127.0.0.1:1" in error and "With --no-startup" in error


def test_the_manifests_of_several_replicas_are_those_of_a_leader_election(kopf_cluster, tmp_path):
    (tmp_path / "handlers.py").write_text("import kopf\n")
    config = str(kopf_cluster.kubeconfig)
    args = ("manifests", "handlers.py", "-A", "--name=mine", "--home=default", "--image=x", "--replicas=2")
    done = kopf(tmp_path, *args, KUBECONFIG=config)
    assert done.returncode == 2
    assert "2 replicas would handle each object 2 times: use --leader-elect" in done.stderr
    done = kopf(tmp_path, *args, "--leader-elect", KUBECONFIG=config)
    assert done.returncode == 0, done.stderr
    kopf_cluster.apply(done.stdout)
    rules = rules_of(done.stdout)
    assert rules["leases", "default", ()] == ["create"]
    assert rules["leases", "default", ("mine",)] == ["get", "update", "watch"]
    bodies = {body["kind"]: body for body in yaml.safe_load_all(done.stdout)}
    spec = bodies["Deployment"]["spec"]
    assert (spec["replicas"], spec["strategy"]["rollingUpdate"]) == (2, {"maxUnavailable": 0, "maxSurge": 1})
    [container] = spec["template"]["spec"]["containers"]
    assert container["args"][:3] == ["--all-namespaces", "--leader-elect", "--lease=mine"]
    assert [item["name"] for item in container["env"]] == ["POD_NAME", "POD_NAMESPACE", "POD_UID", "POD_ID"]
    assert bodies["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1


def test_the_manifests_of_one_replica_have_no_standby(kopf_cluster, tmp_path):
    (tmp_path / "handlers.py").write_text("import kopf\n")
    args = ("manifests", "handlers.py", "-A", "--image=x")
    done = kopf(tmp_path, *args, KUBECONFIG=str(kopf_cluster.kubeconfig))
    assert done.returncode == 0, done.stderr
    bodies = {body["kind"]: body for body in yaml.safe_load_all(done.stdout)}
    assert bodies["Deployment"]["spec"]["strategy"] == {"type": "Recreate"}
    assert "PodDisruptionBudget" not in bodies
    assert not [key for key in rules_of(done.stdout) if key[0] == "leases"]
