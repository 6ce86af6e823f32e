"""Operators with the documented permissions, and with fewer: everything permitted works at once."""

import threading

from tests.support import cluster as kube
from tests.support.crds import GROUP
from tests.support.fixtures import Shelf

# If a forbidden request waits for a retry, nothing goes on.
HANDLERS = """
import kopf
from calls import called


@kopf.on.startup()
def configure(settings, **_):
    settings.networking.error_backoffs = [3600]
    settings.scanning.disabled = True
    settings.posting.enabled = False


@kopf.on.create('parcels')
def create(name, **_):
    called('create', name=name)
    return {'x': 1}


@kopf.on.delete('parcels')
def delete(name, **_):
    called('delete', name=name)


@kopf.on.update('parcels')
def update(name, patch, **_):
    called('update', name=name)
    patch.fns.append(lambda body: body['spec'].update(made=body['spec']['size']))
"""
ROLES = kube.Resource("rbac.authorization.k8s.io", "v1", "roles")
BINDINGS = kube.Resource("rbac.authorization.k8s.io", "v1", "rolebindings")


def grant(cluster: kube.Cluster, namespace: str, resources: list[str]) -> None:
    """Grant the guest the documented permissions for these resources."""
    rule = {"apiGroups": [GROUP], "resources": resources, "verbs": ["list", "watch", "patch"]}
    cluster.create(ROLES, namespace, {"metadata": {"name": "guest"}, "rules": [rule]})
    binding = {
        "metadata": {"name": "guest"},
        "subjects": [{"kind": "User", "name": "guest"}],
        "roleRef": {"apiGroup": ROLES.group, "kind": "Role", "name": "guest"},
    }
    cluster.create(BINDINGS, namespace, binding)


def test_without_permissions_for_the_status_all_else_works(operator, control_plane, cluster, shelf):
    grant(cluster, shelf.namespace, ["parcels"])
    run = operator(HANDLERS, kubeconfig=control_plane.write_kubeconfig("guest"))
    for name in ("p1", "p2"):
        shelf.create(name, {"size": 1})
        shelf.wait_until_handled(name, timeout=60)
    shelf.delete("p1")
    shelf.wait_until_gone("p1", timeout=60)
    assert [call.details["name"] for call in run.called("create")] == ["p1", "p2"]
    assert [call.details["name"] for call in run.called("delete")] == ["p1"]
    warnings = [line for line in run.log.splitlines() if "[WARNING " in line]
    assert len([line for line in warnings if "may not write the status of parcels" in line]) == 1
    assert 'resources: ["parcels/status"], verbs: ["patch"]' in run.log
    # The rule is added: the failed write is repeated without a change of the object.
    more = {"rules": [{"apiGroups": [GROUP], "resources": ["parcels", "parcels/status"], "verbs": ["*"]}]}
    cluster.patch(ROLES, shelf.namespace, "guest", more)
    shelf.wait_until_handled("p2", status={"create": {"x": 1}}, timeout=60)


def test_conflicts_are_resolved_with_the_documented_permissions(operator, control_plane, cluster, shelf):
    grant(cluster, shelf.namespace, ["parcels", "parcels/status"])
    run = operator(HANDLERS, kubeconfig=control_plane.write_kubeconfig("guest"))
    shelf.create("p1", {"size": 1})
    shelf.wait_until_handled("p1", timeout=60)
    stopping = threading.Event()
    writer = threading.Thread(target=write, args=(shelf, stopping))
    writer.start()
    try:
        for size in range(2, 6):
            shelf.patch("p1", {"spec": {"size": size}})
            shelf.wait("p1", lambda body, size=size: body["spec"].get("made") == size, timeout=60)
        shelf.create("p2", {"size": 1})
        shelf.delete("p1")
        shelf.wait_until_gone("p1", timeout=60)
    finally:
        stopping.set()
        writer.join(10)
    assert "cannot get" not in run.log
    run.check_alive()


def write(shelf: Shelf, stopping: threading.Event) -> None:
    """Change the object all the time, where it is of no interest."""
    number = 0
    while not stopping.wait(0.005):
        number += 1
        try:
            patch = {"status": {"writer": number}}
            shelf.cluster.patch(shelf.resource, shelf.namespace, "p1", patch, "status")
        except kube.ApiError:
            return
