"""Permissions of operators that use objects by their names, as `kopf check` finds them."""

import json
import os

import pytest
import yaml
from kopf.testing import Cluster

from tests.support.commands import kopf

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


def grant(cluster, rules):
    """Grant the account `mine` these permissions in the whole cluster."""
    metadata = {"name": "mine"}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata}
    binding = {
        **role,
        "kind": "ClusterRoleBinding",
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "mine"},
        "subjects": [{"kind": "ServiceAccount", "name": "mine", "namespace": "default"}],
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    for body in (account, {**role, "rules": rules}, binding):
        cluster.apply(json.dumps(body))


def write_kubeconfig(cluster, path):
    """Write a kubeconfig with a token of the account `mine`."""
    url = "/api/v1/namespaces/default/serviceaccounts/mine/token"
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
    config["users"][0]["user"] = {"token": cluster.call("POST", url, request)["status"]["token"]}
    path.write_text(yaml.safe_dump(config))


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
