"""kubectl writes objects: create, apply, replace, edit, label, annotate, patch, scale, set, diff."""

import json

import pytest

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - {name: main, image: "nginx:1"}
        - {name: side, image: "busybox:1"}
"""


def sized(manifest: str, size: int) -> str:
    return manifest.replace("size: 3", f"size: {size}")


def editor(kubectl, script: str) -> str:
    """A program that changes the file which it is given."""
    path = kubectl.home / "editor.sh"
    path.write_text(f'#!/bin/sh\nsed -i "{script}" "$1"\n')
    path.chmod(0o755)
    return str(path)


def test_applied_by_the_client(kubectl, widgets):
    assert kubectl("apply", "-f", kubectl.file(widgets)).endswith("/one created\n")
    assert kubectl("apply", "-f", kubectl.file(widgets)).endswith("/one unchanged\n")
    assert kubectl("apply", "-f", kubectl.file(sized(widgets, 5))).endswith("/one configured\n")
    # A field that is no longer in the file goes.
    assert kubectl("apply", "-f", "-", input=widgets.replace("  colour: red\n", ""))
    assert kubectl.object("widget", "one")["spec"] == {"size": 3}


def test_applied_by_the_client_to_a_built_in_kind(kubectl):
    kubectl("apply", "-f", kubectl.file(DEPLOYMENT))
    changed = DEPLOYMENT.replace("busybox:1", "busybox:2")
    kubectl("apply", "-f", kubectl.file(changed))
    containers = kubectl.object("deploy", "web")["spec"]["template"]["spec"]["containers"]
    assert [c["image"] for c in containers] == ["nginx:1", "busybox:2"]
    assert kubectl("apply", "-f", kubectl.file(changed)) == "deployment.apps/web unchanged\n"


def test_applied_by_the_server(kubectl, widgets):
    apply = ("apply", "--server-side", "--field-manager=us", "-f")
    assert kubectl(*apply, kubectl.file(widgets)).endswith("/one serverside-applied\n")
    managers = kubectl.object("wd", "one")["metadata"]["managedFields"]
    assert [(m["manager"], m["operation"]) for m in managers] == [("us", "Apply")]
    other = ("apply", "--server-side", "--field-manager=them", "-f", kubectl.file(sized(widgets, 5)))
    assert 'conflict with "us": .spec.size' in kubectl.fails(*other)
    kubectl(*other, "--force-conflicts")
    assert kubectl.object("wd", "one")["spec"]["size"] == 5


def test_moved_from_the_client_to_the_server(kubectl, widgets):
    kubectl("apply", "-f", kubectl.file(widgets))
    kubectl("apply", "--server-side", "-f", kubectl.file(widgets))
    kubectl("apply", "--server-side", "-f", kubectl.file(sized(widgets, 5)))
    found = kubectl.object("wd", "one")
    assert found["spec"]["size"] == 5
    assert "kubectl-client-side-apply" not in json.dumps(found["metadata"]["managedFields"])


def test_rejected_with_the_reasons(kubectl, widgets):
    complaint = kubectl.fails("apply", "-f", kubectl.file(sized(widgets, 0)))
    assert "spec.size: Invalid value: 0" in complaint
    complaint = kubectl.fails("apply", "-f", kubectl.file(widgets + "  weight: 1\n"))
    assert 'unknown field "spec.weight"' in complaint
    complaint = kubectl.fails("create", "-f", kubectl.file(widgets.replace("Widget", "Gadget")))
    assert 'no matches for kind "Gadget" in version "kubectl.example.com/v1"' in complaint


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("configmap it --from-literal=a=b", "configmap"),
        ("secret generic it --from-literal=a=b", "secret"),
        ("namespace it", "namespace"),
        ("deployment it --image=nginx --replicas=2 --port=80", "deployment"),
        ("job it --image=busybox -- true", "job"),
        ("cronjob it --image=busybox --schedule=@hourly -- true", "cronjob"),
        ("role it --verb=get --resource=pods", "role"),
        ("rolebinding it --role=r --serviceaccount=default:a", "rolebinding"),
        ("clusterrole it --verb=get --resource=pods", "clusterrole"),
        ("clusterrolebinding it --clusterrole=r --user=u", "clusterrolebinding"),
        ("serviceaccount it", "serviceaccount"),
        ("service clusterip it --tcp=80:8080", "service"),
        ("ingress it --rule=a.example/x=svc:80", "ingress"),
        ("poddisruptionbudget it --min-available=50% --selector=a=b", "pdb"),
        ("priorityclass it --value=10 --description=d", "priorityclass"),
        ("quota it --hard=pods=3,cpu=1", "quota"),
    ],
)
def test_created_from_words(kubectl, words, kind):
    """Objects sent as protocol buffers. The client-side dry run yields the expected object."""
    expected = json.loads(kubectl("create", "--dry-run=client", "-o", "json", *words.split(" ")))
    kubectl("create", *words.split(" "))
    found = kubectl.object(kind, "it")
    assert found["kind"] == expected["kind"]

    def contained(want, have, path):
        if isinstance(want, dict):
            for key, value in want.items():
                if value not in (None, {}, []):
                    contained(value, have[key], f"{path}.{key}")
        elif isinstance(want, list):
            assert len(want) == len(have), path
            for i, value in enumerate(want):
                contained(value, have[i], f"{path}[{i}]")
        else:
            assert have == want, path

    contained(expected, found, kind)
    assert "already exists" in kubectl.fails("create", *words.split(" "))


def test_replaced(kubectl, widgets):
    kubectl("create", "-f", kubectl.file(widgets))
    uid = kubectl.object("wd", "one")["metadata"]["uid"]
    assert kubectl("replace", "-f", kubectl.file(sized(widgets, 5))).endswith("/one replaced\n")
    assert kubectl.object("wd", "one")["metadata"]["uid"] == uid
    kubectl("replace", "--force", "-f", kubectl.file(sized(widgets, 6)))
    found = kubectl.object("wd", "one")
    assert found["spec"]["size"] == 6 and found["metadata"]["uid"] != uid


def test_edited(kubectl, widgets):
    kubectl("create", "-f", kubectl.file(widgets))
    done = kubectl("edit", "wd", "one", EDITOR=editor(kubectl, "s/size: .*/size: 9/"))
    assert done.endswith("/one edited\n")
    assert kubectl.object("wd", "one")["spec"]["size"] == 9
    unchanged = kubectl.run("edit", "wd", "one", EDITOR=editor(kubectl, ""))
    assert "Edit cancelled, no changes made." in unchanged.stdout + unchanged.stderr
    assert "is invalid" in kubectl.fails("edit", "wd", "one", EDITOR=editor(kubectl, "s/size: .*/size: 0/"))
    kubectl(
        "edit",
        "wd",
        "one",
        "--subresource=status",
        EDITOR=editor(kubectl, "s/^spec:/status: {ok: yes}\\nspec:/"),
    )
    assert "status" in kubectl.object("wd", "one")


def test_labelled_and_annotated(kubectl, widgets):
    kubectl("create", "-f", kubectl.file(widgets))
    kubectl("label", "wd", "one", "a=b")
    assert "--overwrite is false" in kubectl.fails("label", "wd", "one", "a=c")
    kubectl("label", "wd", "one", "a=c", "--overwrite")
    kubectl("annotate", "wd", "-l", "a=c", "note=text")
    meta = kubectl.object("wd", "one")["metadata"]
    assert meta["labels"] == {"a": "c"} and meta["annotations"] == {"note": "text"}
    kubectl("label", "wd", "--all", "a-")
    kubectl("annotate", "wd", "one", "note-")
    meta = kubectl.object("wd", "one")["metadata"]
    assert "labels" not in meta and "annotations" not in meta


def test_a_crd_is_annotated_although_a_finalizer_holds_it(kubectl, widgets):
    crd = ("crd", "widgets.kubectl.example.com")
    kubectl("annotate", *crd, "a=b")
    kubectl("create", "-f", kubectl.file(widgets))
    kubectl("patch", "wd", "one", "--type=merge", "-p", '{"metadata":{"finalizers":["example.com/held"]}}')
    kubectl("delete", *crd, "--wait=false")
    kubectl("annotate", *crd, "c=d")
    held = kubectl.object(*crd)["metadata"]
    assert held["annotations"] == {"a": "b", "c": "d"}
    assert held["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    kubectl("patch", "wd", "one", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    kubectl("wait", "--for=delete", "/".join(crd), "--timeout=10s")


def test_patched_in_three_dialects(kubectl, widgets):
    kubectl("create", "-f", kubectl.file(widgets))
    kubectl("patch", "wd", "one", "--type=merge", "-p", '{"spec":{"size":7}}')
    kubectl("patch", "wd", "one", "--type=json", "-p", '[{"op":"remove","path":"/spec/colour"}]')
    assert kubectl.object("wd", "one")["spec"] == {"size": 7}
    kubectl("create", "-f", kubectl.file(DEPLOYMENT))
    part = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "busybox:9"}]}}}}
    kubectl("patch", "deploy", "web", "--type=strategic", "-p", json.dumps(part))
    containers = kubectl.object("deploy", "web")["spec"]["template"]["spec"]["containers"]
    assert {c["name"]: c["image"] for c in containers} == {"main": "nginx:1", "side": "busybox:9"}
    assert "not supported" in kubectl.fails("patch", "wd", "one", "-p", '{"spec":{"size":7}}')
    kubectl(
        "patch",
        "wd",
        "one",
        "--subresource=status",
        "--type=merge",
        "-p",
        '{"status":{"seen":1},"spec":{"size":1}}',
    )
    found = kubectl.object("wd", "one")
    assert found["status"] == {"seen": 1} and found["spec"] == {"size": 7}


def test_scaled(kubectl, widgets):
    kubectl("create", "-f", kubectl.file(widgets))
    kubectl("create", "-f", kubectl.file(DEPLOYMENT))
    kubectl("scale", "wd", "one", "--replicas=3")
    kubectl("scale", "deploy/web", "--current-replicas=2", "--replicas=4")
    assert "Expected replicas to be 2, was 4" in kubectl.fails(
        "scale", "deploy/web", "--current-replicas=2", "--replicas=1"
    )
    assert kubectl("get", "wd/one", "deploy/web", "-o", "jsonpath={.items[*].spec.replicas}") == "3 4"
    kubectl("autoscale", "deploy/web", "--min=1", "--max=5")
    assert kubectl.object("hpa", "web")["spec"]["maxReplicas"] == 5


def test_set_and_exposed(kubectl):
    kubectl("create", "-f", kubectl.file(DEPLOYMENT))
    kubectl("set", "image", "deploy/web", "main=nginx:2")
    kubectl("set", "env", "deploy/web", "-c", "main", "A=b")
    main = kubectl.object("deploy", "web")["spec"]["template"]["spec"]["containers"][0]
    assert main["image"] == "nginx:2" and main["env"] == [{"name": "A", "value": "b"}]
    kubectl("expose", "deploy/web", "--port=80", "--target-port=http")
    ports = kubectl.object("service", "web")["spec"]["ports"]
    assert ports == [{"port": 80, "protocol": "TCP", "targetPort": "http"}]


def test_differences_are_shown_before_they_are_made(kubectl, widgets):
    kubectl("apply", "-f", kubectl.file(widgets))
    for how in ("--server-side=false", "--server-side=true"):
        done = kubectl.run(
            "diff", how, "--force-conflicts=" + how.split("=")[1], "-f", kubectl.file(sized(widgets, 5))
        )
        assert done.returncode == 1, done.stderr
        assert "-  size: 3" in done.stdout and "+  size: 5" in done.stdout
    assert kubectl.run("diff", "-f", kubectl.file(widgets)).returncode == 0
    assert kubectl.object("wd", "one")["spec"]["size"] == 3


def test_tried_without_being_stored(kubectl, widgets):
    done = kubectl("apply", "--dry-run=server", "-f", kubectl.file(widgets))
    assert done.endswith("/one created (server dry run)\n")
    assert "NotFound" in kubectl.fails("get", "wd", "one")
