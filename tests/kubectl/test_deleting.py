"""kubectl deletes: with and without waiting, with the three ways of cascading, by selection, namespaces."""

import json

import pytest


@pytest.fixture
def family(kubectl):
    """An owner and what it owns."""

    def make(name: str, owner: dict | None = None, **meta) -> dict:
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {"all": "ours"}, **meta},
        }
        if owner is not None:
            about = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"]}
            about["uid"] = owner["metadata"]["uid"]
            body["metadata"]["ownerReferences"] = [{**about, "blockOwnerDeletion": True}]
        kubectl("create", "-f", "-", input=json.dumps(body))
        return kubectl.object("cm", name)

    parent = make("parent")
    make("child", parent)
    return make


def names(kubectl) -> list[str]:
    return [line.removeprefix("configmap/") for line in kubectl("get", "cm", "-o", "name").split()]


def test_waiting_for_finalizers(kubectl, family):
    family("held", finalizers=["example.com/held"])
    assert "timed out" in kubectl.fails("delete", "cm", "held", "--timeout=1s")
    kubectl("delete", "cm", "held", "--wait=false")
    assert "held" in names(kubectl)
    with kubectl.start("delete", "cm", "held", "--wait=true") as process:
        assert "deleted" in process.stdout.readline()  # It has asked, and waits.
        kubectl("patch", "cm", "held", "--type=json", "-p", '[{"op":"remove","path":"/metadata/finalizers"}]')
        assert process.wait(timeout=60) == 0
    assert "held" not in names(kubectl)


def test_in_the_background(kubectl, family):
    assert kubectl("delete", "cm", "parent", "--cascade=background").startswith('configmap "parent" deleted')
    kubectl("wait", "--for=delete", "cm/child", "--timeout=10s")


def test_in_the_foreground(kubectl, family):
    kubectl("patch", "cm", "child", "--type=merge", "-p", '{"metadata":{"finalizers":["example.com/held"]}}')
    assert "timed out" in kubectl.fails("delete", "cm", "parent", "--cascade=foreground", "--timeout=1s")
    assert names(kubectl) == ["child", "parent"]
    kubectl("patch", "cm", "child", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    kubectl("wait", "--for=delete", "cm/parent", "cm/child", "--timeout=10s")


def test_leaving_orphans(kubectl, family):
    kubectl("delete", "cm", "parent", "--cascade=orphan")
    assert "ownerReferences" not in kubectl.object("cm", "child")["metadata"]


def test_by_selection_and_files(kubectl, family):
    kubectl("delete", "cm", "-l", "all=ours")
    assert names(kubectl) == []
    kubectl("delete", "cm", "parent", "--ignore-not-found")
    assert "NotFound" in kubectl.fails("delete", "cm", "parent")
    manifest = kubectl.file(json.dumps({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}))
    kubectl("create", "-f", manifest)
    kubectl("delete", "-f", manifest)
    kubectl("delete", "cm", "--all")


def test_pods_at_once(kubectl):
    kubectl("run", "alone", "--image=nginx")
    kubectl("delete", "pod", "alone", "--grace-period=0", "--force")
    assert "NotFound" in kubectl.fails("get", "pod", "alone")


def test_namespaces_with_all_that_is_in_them(kubectl, family, widgets):
    kubectl("create", "namespace", "other")
    kubectl("create", "configmap", "there", "-n", "other")
    kubectl("create", "-n", "other", "-f", kubectl.file(widgets))
    kubectl("delete", "namespace", "other", "--timeout=20s")
    assert kubectl("get", "cm,wd", "-n", "other", "-o", "name") == ""
    assert names(kubectl) == ["child", "parent"]


def test_crds_with_their_objects(kubectl, widgets):
    kubectl("create", "-f", kubectl.file(widgets))
    kubectl("delete", "crd", "widgets.kubectl.example.com", "--timeout=20s")
    # kubectl has cached the kind; the server responds that it does not exist.
    assert "the server could not find the requested resource" in kubectl.fails("get", "widgets")
