"""Namespaces that are deleted together with the permissions of the operator in them."""

import kopf
import pytest

from tests.support.accounts import grant

pytestmark = [pytest.mark.kopf_embedded_only, pytest.mark.kopf_cluster(access=True)]

ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/mine/token"
SCANNING = [
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]},
    {
        "apiGroups": ["apiextensions.k8s.io"],
        "resources": ["customresourcedefinitions"],
        "verbs": ["list", "watch"],
    },
]
ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: mine}
rules:
  - {apiGroups: [behaviours.example.com], resources: [widgets, widgets/status], verbs: [list, watch, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: mine}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: mine}
subjects: [{kind: ServiceAccount, name: mine, namespace: default}]
"""


@pytest.fixture
def make_namespace(cluster):
    def create(name):
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        cluster.apply(ROLE, namespace=name)

    return create


def test_a_namespace_is_deleted_with_the_permissions_in_it_and_created_again(
    cluster, make, make_namespace, kopf_operator
):
    grant(cluster, SCANNING)
    token = cluster.call("POST", ACCOUNT, {"spec": {}})["status"]["token"]
    calls = []

    def handlers():
        @kopf.on.login()
        def log_in(**_):
            return kopf.ConnectionInfo(server=cluster.url, token=token, insecure=True)

        @kopf.on.create("widgets")
        @kopf.on.update("widgets")
        def handle(name, namespace, spec, **_):
            calls.append((namespace, spec["size"]))

    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    for name in ("team-a", "team-b"):
        make_namespace(name)
        make("one", namespace=name)
    cluster.freeze()
    operator = kopf_operator(handlers, namespaces=["team-*"], settings=settings)
    operator.wait_until_idle()
    assert sorted(calls) == [("team-a", 1), ("team-b", 1)]

    # The binding vanishes before the namespace does: the watch is rejected, and retried.
    cluster.delete("rolebindings", "mine", "team-a")
    cluster.drop_watches("widgets")
    cluster.advance(30)
    path = "/apis/behaviours.example.com/v1/namespaces/team-a/widgets"
    assert [it for it in cluster.requests if it.path == path and it.code == 403]
    cluster.patch("widgets", "one", {"spec": {"size": 2}}, "team-b")
    operator.wait_until_idle()
    assert calls[2:] == [("team-b", 2)], "the other namespace is served"
    cluster.delete("namespaces", "team-a")
    cluster.wait_until_gone("namespaces", "team-a")
    operator.wait_until_idle()
    cluster.clear_requests()
    cluster.advance(600)
    assert not [it.path for it in cluster.requests if it.path == path], "nothing is retried any more"

    make_namespace("team-a")
    make("two", spec={"size": 3}, namespace="team-a")
    operator.wait_until_idle()
    cluster.advance(60)
    assert calls[3:] == [("team-a", 3)]


def test_a_finalizer_that_outlives_the_permissions_is_removed_when_they_are_granted_elsewhere(
    cluster, make, make_namespace, kopf_operator, finalizer, caplog
):
    grant(cluster, SCANNING)
    token = cluster.call("POST", ACCOUNT, {"spec": {}})["status"]["token"]
    calls = []

    def handlers():
        @kopf.on.login()
        def log_in(**_):
            return kopf.ConnectionInfo(server=cluster.url, token=token, insecure=True)

        @kopf.on.delete("widgets")
        def delete(name, **_):
            calls.append(name)

    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    make_namespace("team-a")
    make("one", namespace="team-a")
    cluster.freeze()
    operator = kopf_operator(handlers, namespaces=["team-*"], settings=settings)
    operator.wait_until_idle()
    assert cluster.get("widgets", "one", "team-a")["metadata"]["finalizers"] == [finalizer]

    # The server deletes the binding at once, but not the object.
    cluster.delete("namespaces", "team-a")
    operator.wait_until_idle()
    cluster.advance(60)
    assert cluster.find("rolebindings", "mine", "team-a") is None
    assert cluster.get("widgets", "one", "team-a")["metadata"]["finalizers"] == [finalizer]
    assert "403" in caplog.text
    widgets = {"apiGroups": ["behaviours.example.com"], "resources": ["widgets", "widgets/status"]}
    grant(cluster, [*SCANNING, {**widgets, "verbs": ["list", "watch", "patch"]}])
    cluster.advance(600)
    cluster.wait_until_gone("namespaces", "team-a")
    assert calls == ["one"]
