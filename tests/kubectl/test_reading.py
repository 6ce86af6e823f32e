"""kubectl reads: get in all forms, describe, explain, api-resources, wait, events, auth."""

import json
import re

import pytest


def make(kubectl, size: int = 3, name: str = "one") -> None:
    manifest = {
        "apiVersion": "kubectl.example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name, "labels": {"size": str(size)}},
        "spec": {"size": size, "colour": "red"},
    }
    kubectl("create", "-f", "-", input=json.dumps(manifest))


def rows(output: str) -> list[list[str]]:
    return [re.split(r"\s{2,}|\t", line.strip()) for line in output.splitlines()]


def test_tables(kubectl, widgets):
    make(kubectl)
    assert rows(kubectl("get", "wd")) == [["NAME", "SIZE"], ["one", "3"]]
    assert rows(kubectl("get", "wd", "-o", "wide")) == [["NAME", "SIZE", "COLOUR"], ["one", "3", "red"]]
    assert kubectl("get", "wd", "-o", "name") == "widget.kubectl.example.com/one\n"
    assert kubectl("get", "wd", "one", "-o", "jsonpath={.spec.size}") == "3"
    columns = kubectl("get", "wd", "-o", "custom-columns=N:.metadata.name,S:.spec.size", "--no-headers")
    assert columns.split() == ["one", "3"]
    assert "size: 3" in kubectl("get", "wd", "one", "-o", "yaml")
    assert "one" in kubectl("get", "all") and "service/kubernetes" in kubectl("get", "all")
    assert rows(kubectl("get", "wd", "-A"))[1][:2] == ["default", "one"]


def test_selected_sorted_and_in_pages(kubectl, widgets):
    for i in (3, 1, 2):
        make(kubectl, i, f"w{i}")
    assert kubectl("get", "wd", "-l", "size in (1,2)", "-o", "name").split() == [
        "widget.kubectl.example.com/w1",
        "widget.kubectl.example.com/w2",
    ]
    assert kubectl("get", "wd", "--field-selector=metadata.name=w3", "-o", "name").count("\n") == 1
    by_size = kubectl("get", "wd", "--sort-by=.spec.size", "-o", "name", "--chunk-size=1")
    assert [line[-2:] for line in by_size.split()] == ["w1", "w2", "w3"]


def test_what_is_not_there(kubectl, widgets):
    assert '(NotFound): widgets.kubectl.example.com "one" not found' in kubectl.fails("get", "wd", "one")
    assert 'doesn\'t have a resource type "gadgets"' in kubectl.fails("get", "gadgets")
    assert "No resources found" in kubectl.run("get", "wd").stderr


def test_watched(kubectl, widgets):
    make(kubectl)
    with kubectl.start("get", "wd", "-w", "--output-watch-events", "-o", "name") as watch:
        assert watch.stdout is not None
        # kubectl prints the kind of the event before the name, or the name alone, by its version.
        assert watch.stdout.readline().strip().endswith("one")
        make(kubectl, 4, "two")
        assert watch.stdout.readline().strip().endswith("two")
        kubectl("delete", "wd", "one")
        assert watch.stdout.readline().strip().endswith("one")
        watch.terminate()


def test_watched_as_a_table(kubectl, widgets):
    make(kubectl)
    with kubectl.start("get", "wd", "-w") as watch:
        assert watch.stdout is not None
        assert watch.stdout.readline().split() == ["NAME", "SIZE"]
        assert watch.stdout.readline().split() == ["one", "3"]
        kubectl("patch", "wd", "one", "--type=merge", "-p", '{"spec":{"size":4}}')
        assert watch.stdout.readline().split() == ["one", "4"]
        watch.terminate()


def test_described(kubectl, widgets):
    make(kubectl)
    output = kubectl("describe", "wd", "one")
    assert re.search(r"Name: +one", output) and re.search(r"Size: +3", output)
    kubectl("create", "configmap", "settings", "--from-literal=a=b")
    assert "Data\n====\na:" in kubectl("describe", "cm", "settings")
    assert re.search(r"Status: +Active", kubectl("describe", "ns", "default"))
    assert re.search(r"Kind: +Widget", kubectl("describe", "crd", "widgets.kubectl.example.com"))


def test_described_with_its_events(kubectl, widgets):
    make(kubectl)
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "one.1"},
        "involvedObject": {**kubectl.object("wd", "one"), "name": "one", "namespace": "default"},
        "reason": "Grown",
        "message": "It has grown.",
        "type": "Normal",
    }
    about = event["involvedObject"]
    event["involvedObject"] = {
        "apiVersion": about["apiVersion"],
        "kind": about["kind"],
        "name": "one",
        "namespace": "default",
        "uid": about["metadata"]["uid"],
    }
    kubectl("create", "-f", "-", input=json.dumps(event))
    assert "It has grown." in kubectl("describe", "wd", "one")
    assert "It has grown." in kubectl("events", "--for=wd/one")
    assert "It has grown." in kubectl("get", "events")


def test_explained(kubectl, widgets):
    output = kubectl("explain", "widget")
    assert re.search(r"GROUP: +kubectl.example.com", output)
    assert "A thing of a size." in output and "The desired state of the thing." in output
    output = kubectl("explain", "wd.spec.size")
    assert "size <integer>" in output and "How large it is." in output
    output = kubectl("explain", "wd.spec", "--recursive")
    assert re.search(r"parts\s+<\[\]Object>\n\s+weight\s+<integer>", output)
    assert re.search(r"size\s+<integer> -required-", output)
    assert re.search(r"enum: red, blue", kubectl("explain", "wd.spec"))


def test_built_in_kinds_are_explained(kubectl):
    output = kubectl("explain", "deployment.spec.template.spec.containers")
    assert "containers <[]Container>" in output and "One container of a pod." not in output.split("FIELDS")[1]
    assert re.search(r"image\s+<string>\n\s+The image that runs.", output)
    assert re.search(r"ownerReferences\s+<\[\]OwnerReference>", kubectl("explain", "pod", "--recursive"))
    assert "does not exist" in kubectl.fails("explain", "pod.spec.nothing")


def test_resources_are_listed(kubectl, widgets):
    listed = kubectl("api-resources", "--no-headers")
    ours = next(line.split() for line in listed.splitlines() if line.startswith("widgets"))
    assert ours == ["widgets", "wd", "kubectl.example.com/v1", "true", "Widget"]
    assert {"pods", "deployments.apps", "customresourcedefinitions.apiextensions.k8s.io"} <= set(
        kubectl("api-resources", "-o", "name").split()
    )
    assert "kubectl.example.com/v1" in kubectl("api-versions").split()
    assert "v1.36" in kubectl("version")


def test_waited_for(kubectl, widgets):
    kubectl("wait", "--for=condition=Established", "crd/widgets.kubectl.example.com", "--timeout=10s")
    make(kubectl)
    waiting = ("wait", "wd/one", "--for=jsonpath={.spec.size}=8")
    assert "timed out" in kubectl.fails(*waiting, "--timeout=1s")
    with kubectl.start(*waiting, "--timeout=20s") as process:
        kubectl("patch", "wd", "one", "--type=merge", "-p", '{"spec":{"size":8}}')
        output, _ = process.communicate(timeout=60)
        assert output == "widget.kubectl.example.com/one condition met\n"
    with kubectl.start("wait", "wd/two", "--for=create", "--timeout=20s") as process:
        make(kubectl, 1, "two")
        assert process.wait(timeout=60) == 0


@pytest.mark.parametrize("options", [{"controllers": True}], ids=["with controllers"])
def test_rolled_out(kubectl):
    kubectl("create", "deployment", "web", "--image=nginx:1", "--replicas=2")
    kubectl("rollout", "status", "deploy/web", "--timeout=20s")
    kubectl("wait", "--for=condition=Available", "deploy/web", "--timeout=20s")
    kubectl("wait", "--for=condition=Ready", "pod", "-l", "app=web", "--timeout=20s")
    assert "Running" in kubectl("get", "pods")
    kubectl("rollout", "restart", "deploy/web")
    kubectl("rollout", "status", "deploy/web", "--timeout=20s")
    kubectl("create", "job", "once", "--image=busybox", "--", "true")
    kubectl("wait", "--for=condition=complete", "job/once", "--timeout=20s")
    kubectl("logs", "job/once")


def test_asked_what_is_allowed(kubectl):
    assert kubectl("auth", "can-i", "create", "pods") == "yes\n"
    assert kubectl("auth", "can-i", "*", "*") == "yes\n"
    assert "admin" in kubectl("auth", "whoami")
    assert "*.*" in kubectl("auth", "can-i", "--list")


@pytest.mark.parametrize("options", [{"access": True}], ids=["with access rules"])
def test_allowed_by_roles(kubectl):
    kubectl("create", "serviceaccount", "reader")
    kubectl("create", "role", "reading", "--verb=get,list", "--resource=pods")
    kubectl("create", "rolebinding", "reading", "--role=reading", "--serviceaccount=default:reader")
    reader = "--as=system:serviceaccount:default:reader"
    assert kubectl("auth", "can-i", "list", "pods", reader) == "yes\n"
    denied = kubectl.run("auth", "can-i", "delete", "pods", reader)
    assert (denied.returncode, denied.stdout) == (1, "no\n")
    assert rows(kubectl("auth", "can-i", "--list", reader))[-1][0] == "pods"
    assert "No resources found" in kubectl.run("get", "pods", reader).stderr
    forbidden = kubectl.fails("get", "secrets", reader)
    assert "(Forbidden): secrets is forbidden" in forbidden
    assert 'User "system:serviceaccount:default:reader" cannot list resource "secrets"' in forbidden
    # With a token, as the user of that token.
    token = kubectl("create", "token", "reader").strip()
    other = kubectl.kubeconfig.read_text()
    other = re.sub(r"token: .*", f"token: {token}", other)
    file = kubectl.file(other, "other")
    assert kubectl("--kubeconfig", file, "auth", "can-i", "get", "pods") == "yes\n"
    assert "Forbidden" in kubectl.fails("--kubeconfig", file, "get", "pods", "--as=alice")


def test_strangers_are_turned_away(kubectl):
    file = kubectl.file(re.sub(r"token: .*", "token: wrong", kubectl.kubeconfig.read_text()), "stranger")
    assert "You must be logged in to the server" in kubectl.fails("--kubeconfig", file, "get", "pods")
    mine = kubectl.kubeconfig.read_text()
    distrust = re.sub(r"certificate-authority-data: .*", "insecure-skip-tls-verify: false", mine)
    assert "certificate" in kubectl.fails("--kubeconfig", kubectl.file(distrust, "distrust"), "get", "pods")
