"""An account with given permissions, and a kubeconfig with its token."""

import json

import yaml


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


def write_kubeconfig(cluster, path, account="mine"):
    """Write a kubeconfig with a token of the account."""
    url = f"/api/v1/namespaces/default/serviceaccounts/{account}/token"
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
    config["users"][0]["user"] = {"token": cluster.call("POST", url, request)["status"]["token"]}
    path.write_text(yaml.safe_dump(config))
