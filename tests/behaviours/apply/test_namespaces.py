"""Members of an ApplySet in namespaces that do not exist any more. Section 6.5."""

import kopf
import pytest

from tests.support.accounts import grant, write_kubeconfig

pytestmark = [pytest.mark.kopf_embedded_only, pytest.mark.kopf_cluster(access=True)]
ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: mine}
rules:
  - {apiGroups: [behaviours.example.com], resources: ["*"], verbs: ["*"]}
  - {apiGroups: [""], resources: [configmaps], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: mine}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: mine}
subjects: [{kind: ServiceAccount, name: mine, namespace: default}]
"""


def config_map(name, namespace):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}


def test_6_5_members_in_a_namespace_that_is_deleted_with_its_permissions_are_gone(cluster, make, tmp_path):
    grant(cluster, [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]}])
    for name in ("team", "far"):
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        cluster.apply(ROLE, namespace=name)
    owner = make("one", namespace="team")
    near, far = config_map("near", "team"), config_map("far", "far")
    write_kubeconfig(cluster, tmp_path / "config")
    with kopf.connect_sync(kubeconfig=tmp_path / "config") as api:
        kopf.apply_sync([near, far], owner=owner, prune=True, api=api)
        cluster.delete("namespaces", "far")
        cluster.wait_until_gone("namespaces", "far")
        owner = cluster.get("widgets", "one", "team")
        assert kopf.apply_sync(near, owner=owner, prune=True, api=api).pruned == []
    annotations = cluster.get("widgets", "one", "team")["metadata"]["annotations"]
    assert annotations["applyset.kubernetes.io/additional-namespaces"] == ""
