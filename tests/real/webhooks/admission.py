"""Steps with admission webhooks."""

from __future__ import annotations

import base64
import threading
from typing import Any

from tests.real.webhooks.flow import APPLY, JSON_PATCH, MERGE, STRATEGIC, Flow, labelled
from tests.support.webhooks import (
    Answer,
    Object,
    Reply,
    allow,
    deny,
    hang_up,
    patch,
    patch_text,
    raw,
    respond,
)

NAMESPACE = "flow"
MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
GROUP = "admission.flows.testing.kopf.dev"
GADGETS = f"/apis/{GROUP}/v1/namespaces/{NAMESPACE}/gadgets"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
EVERYTHING = [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}]
SUBRESOURCES = [
    {
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "resources": ["*/*"],
        "operations": ["*"],
        "scope": "Namespaced",
    }
]
PATHS = {"/mutate", "/again", "/validate"}


def hook(flow: Flow, name: str, rules: list[Object], **more: Any) -> Object:
    """A webhook; its name is its path."""
    return {
        "name": f"{name}.flow.dev",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "clientConfig": flow.webhook.client_config(f"/{name}"),
        "rules": rules,
        **more,
    }


def matching(**labels: str) -> Object:
    return {"objectSelector": {"matchLabels": {"flow": "yes", **labels}}}


def gadget_crd() -> Object:
    """The CRD of a custom kind, with both subresources."""
    spec = {
        "type": "object",
        "properties": {
            "size": {"type": "integer", "minimum": 1},
            "colour": {"type": "string", "default": "red"},
            "replicas": {"type": "integer"},
        },
    }
    status = {"type": "object", "properties": {"phase": {"type": "string"}, "replicas": {"type": "integer"}}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
    }
    names = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gadgets.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def gadget(name: str, **fields: Any) -> Object:
    return labelled("Gadget", name, f"{GROUP}/v1", **fields)


def config_map(name: str, labels: dict[str, str] | None = None, **data: str) -> Object:
    return labelled("ConfigMap", name, labels=labels, data=data)


def run(flow: Flow) -> None:
    """All steps, in an order that matters."""
    flow.must("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", gadget_crd())
    flow.must("POST", "/api/v1/namespaces", labelled("Namespace", NAMESPACE))
    flow.until_served(GADGETS)
    try:
        configure(flow)
        create(flow)
        update(flow)
        use_subresources(flow)
        delete(flow)
        use_cluster_scoped_kinds(flow)
        mutate(flow)
        answer_badly(flow)
        patch_badly(flow)
        deny_requests(flow)
        warn(flow)
    finally:
        for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            flow.send("DELETE", f"{CONFIGURATIONS}/{plural}/flow")


def configure(flow: Flow) -> None:
    inside = {"namespaceSelector": {"matchLabels": {"flow": "yes"}}}
    mutating = [
        hook(flow, "mutate", EVERYTHING, **matching(), reinvocationPolicy="IfNeeded"),
        hook(flow, "again", EVERYTHING, **matching(), matchPolicy="Exact"),
        hook(flow, "ignored", EVERYTHING, **matching(ignored="yes"), failurePolicy="Ignore"),
        hook(flow, "slow", EVERYTHING, **matching(slow="yes"), timeoutSeconds=1),
        hook(
            flow, "beta", EVERYTHING, **matching(beta="yes"), admissionReviewVersions=["v0", "v1beta1", "v1"]
        ),
        hook(
            flow,
            "below",
            SUBRESOURCES,
            **inside,
            matchConditions=[
                {"name": "subresource", "expression": "has(request.subResource) && request.subResource != ''"}
            ],
        ),
    ]
    validating = [
        hook(flow, "validate", EVERYTHING, **matching()),
        hook(flow, "second", EVERYTHING, **matching(second="yes")),
        hook(
            flow,
            "check-below",
            SUBRESOURCES,
            **inside,
            matchConditions=[
                {"name": "subresource", "expression": "has(request.subResource) && request.subResource != ''"}
            ],
        ),
    ]
    for plural, webhooks in (
        ("mutatingwebhookconfigurations", mutating),
        ("validatingwebhookconfigurations", validating),
    ):
        flow.must("POST", f"{CONFIGURATIONS}/{plural}", {"metadata": {"name": "flow"}, "webhooks": webhooks})
    flow.until_called(PATHS, "POST", MAPS, config_map("probe"))


def create(flow: Flow) -> None:
    options = "?fieldManager=creator&fieldValidation=Strict"
    flow.step("create", "POST", MAPS + options, config_map("plain", a="1"))
    generated = config_map("")
    generated["metadata"] |= {"generateName": "flow-generated-"}
    flow.step("create with a generated name", "POST", MAPS, generated)
    named = [{"op": "add", "path": "/metadata/name", "value": "named"}]
    flow.step("name a created object", "POST", MAPS, generated, answers={"/mutate": patch(*named)})
    flow.step("create in a dry run", "POST", f"{MAPS}?dryRun=All", config_map("dry"))
    given = config_map("given")
    given["metadata"] |= {
        "uid": "b5f5a6f5-2f5c-4f63-9a59-3a1a2c6a0001",
        "creationTimestamp": "2020-01-01T00:00:00Z",
        "generation": 7,
        "managedFields": [],
        "annotations": {},
        "finalizers": [],
    }
    flow.step("create with system fields", "POST", MAPS, given)
    flow.step("create a custom object", "POST", GADGETS, gadget("one", spec={"size": 2}))
    full = gadget("full", spec={"replicas": 2, "size": 1}, status={"phase": "Given"})
    full["metadata"] |= {"generation": 9, "creationTimestamp": None, "annotations": {"a": "b"}}
    flow.step("create a custom object with a status", "POST", GADGETS, full)
    pod = labelled("Pod", "pod", spec={"containers": [{"name": "main", "image": "nginx"}]})
    pod["status"] = {"phase": "Running"}
    flow.step("create a pod", "POST", PODS, pod)
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    flow.step("create a deployment", "POST", DEPLOYMENTS, labelled("Deployment", "web", "apps/v1", spec=spec))
    scaler = {
        "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
        "maxReplicas": 3,
    }
    path = f"/apis/autoscaling/v1/namespaces/{NAMESPACE}/horizontalpodautoscalers"
    body = labelled("HorizontalPodAutoscaler", "web", "autoscaling/v1", spec=scaler)
    flow.step("create in an older version", "POST", path, body)
    applied = config_map("applied", a="1")
    flow.step("apply a new object", "PATCH", f"{MAPS}/applied?fieldManager=applier", applied, APPLY)
    flow.step("create what exists", "POST", MAPS, config_map("plain"))
    flow.step("create in no namespace", "POST", MAPS.replace(NAMESPACE, "nowhere"), config_map("plain"))
    flow.step("create an invalid object", "POST", GADGETS, gadget("invalid", spec={"size": 0}))
    lease = labelled("Lease", "lease", "coordination.k8s.io/v1", spec={"holderIdentity": "a"})
    path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/lease"
    flow.step("create by an update", "PUT", f"{path}?fieldManager=updater", lease)


def update(flow: Flow) -> None:
    plain, one = f"{MAPS}/plain", f"{GADGETS}/one"
    flow.step("update without a version", "PUT", f"{plain}?fieldManager=updater", config_map("plain", a="2"))
    current = flow.must("GET", plain)
    current["metadata"] |= {"creationTimestamp": "2020-01-01T00:00:00Z", "generation": 3}
    flow.step("update system fields", "PUT", plain, {**current, "data": {"a": "3"}})
    current = flow.must("GET", one)
    current["metadata"] |= {"generation": 30, "managedFields": []}
    changed = {**current, "spec": {"size": 3}, "status": {"phase": "Wrong"}}
    flow.step("update a custom object with a status", "PUT", one, changed)
    flow.step("merge", "PATCH", f"{plain}?fieldManager=merger", {"data": {"b": "1"}}, MERGE)
    flow.step("merge nothing", "PATCH", plain, {}, MERGE)
    operations = [{"op": "add", "path": "/data/c", "value": "1"}]
    flow.step("json patch", "PATCH", f"{plain}?dryRun=All", operations, JSON_PATCH)
    labels = {"metadata": {"labels": {"x": "y"}}}
    flow.step("strategic patch", "PATCH", f"{DEPLOYMENTS}/web", labels, STRATEGIC)
    body = {"spec": {"size": 4}, "status": {"phase": "Wrong"}}
    flow.step("merge a custom object with a status", "PATCH", one, body, MERGE)
    options = "?fieldManager=applier&force=true&fieldValidation=Warn"
    flow.step("apply by force", "PATCH", f"{MAPS}/plain{options}", config_map("plain", a="4"), APPLY)
    flow.step("apply the same", "PATCH", f"{MAPS}/plain{options}", config_map("plain", a="4"), APPLY)
    flow.step("merge an invalid object", "PATCH", one, {"spec": {"size": 0}}, MERGE)


def use_subresources(flow: Flow) -> None:
    one, web = f"{GADGETS}/one", f"{DEPLOYMENTS}/web"
    both = {"status": {"phase": "Ready"}, "spec": {"size": 9}, "metadata": {"labels": {"no": "no"}}}
    flow.step("merge a status", "PATCH", f"{one}/status", both, MERGE)
    current = flow.must("GET", one)
    changed = {**current, "status": {"phase": "Put"}, "spec": {"size": 8}}
    flow.step("update a status", "PUT", f"{one}/status", changed)
    flow.step(
        "merge a status of a built-in kind", "PATCH", f"{web}/status", {"status": {"replicas": 2}}, MERGE
    )
    body = {"spec": {"replicas": 4}}
    flow.step("scale a custom object", "PATCH", f"{one}/scale", body, MERGE)
    flow.step("scale", "PATCH", f"{web}/scale?fieldManager=scaler", body, MERGE)
    scale = flow.must("GET", f"{web}/scale")
    scale["spec"]["replicas"] = 5
    flow.step("update a scale", "PUT", f"{web}/scale", scale)
    replicas = patch({"op": "replace", "path": "/spec/replicas", "value": 6})
    scale["metadata"].pop("resourceVersion")
    flow.step("mutate a scale", "PUT", f"{web}/scale", scale, answers={"/below": replicas})
    binding = {"metadata": {"name": "pod"}, "target": {"kind": "Node", "name": "node"}}
    flow.step("bind a pod", "POST", f"{PODS}/pod/binding", binding)
    eviction: Object = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "pod"}}
    eviction["deleteOptions"] = {"gracePeriodSeconds": 0}
    denied = {"/check-below": deny(message="no eviction", code=429)}
    flow.step("deny an eviction", "POST", f"{PODS}/pod/eviction", eviction, answers=denied)
    flow.step("evict a pod", "POST", f"{PODS}/pod/eviction", eviction)
    flow.step("evict no pod", "POST", f"{PODS}/nothing/eviction", eviction)


def delete(flow: Flow) -> None:
    options = {"propagationPolicy": "Foreground", "gracePeriodSeconds": 3, "dryRun": ["All"]}
    ignored = "?propagationPolicy=Orphan&gracePeriodSeconds=7"
    flow.step("delete with options", "DELETE", f"{DEPLOYMENTS}/web{ignored}", options)
    flow.step("delete with a query", "DELETE", f"{DEPLOYMENTS}/web?propagationPolicy=Background&dryRun=All")
    flow.step("delete a precondition", "DELETE", f"{MAPS}/plain", {"preconditions": {"uid": "wrong"}})
    denied = {"/validate": deny(message="it is kept", code=409, reason="Conflict")}
    flow.step("deny a deletion", "DELETE", f"{MAPS}/plain", answers=denied)
    flow.step("deny a deletion by mutation", "DELETE", f"{MAPS}/plain", answers={"/mutate": deny()})
    changed = {"/mutate": patch({"op": "add", "path": "/data/x", "value": "y"})}
    flow.step("mutate a deletion", "DELETE", f"{MAPS}/plain", answers=changed)
    flow.step("delete", "DELETE", f"{MAPS}/plain")
    flow.step("delete nothing", "DELETE", f"{MAPS}/plain")
    held = config_map("held")
    held["metadata"]["finalizers"] = ["flow.dev/held"]
    flow.must("POST", MAPS, held)
    flow.step("delete with a finalizer", "DELETE", f"{MAPS}/held")
    flow.step("delete with a finalizer again", "DELETE", f"{MAPS}/held")
    flow.step("release", "PATCH", f"{MAPS}/held", {"metadata": {"finalizers": None}}, MERGE)
    for name in ("c1", "c2"):
        flow.must("POST", MAPS, config_map(name, {"collection": "yes"}))
    flow.step("delete a collection", "DELETE", f"{MAPS}?labelSelector=collection%3Dyes")


def use_cluster_scoped_kinds(flow: Flow) -> None:
    spaces = "/api/v1/namespaces"
    flow.step("create a namespace", "POST", spaces, labelled("Namespace", "flow-other"))
    annotations = {"metadata": {"annotations": {"a": "b"}}}
    flow.step("merge a namespace", "PATCH", f"{spaces}/flow-other", annotations, MERGE)
    flow.step("delete a namespace", "DELETE", f"{spaces}/flow-other")
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    role = labelled("ClusterRole", "flow-role", "rbac.authorization.k8s.io/v1", rules=[])
    flow.step("create a role", "POST", roles, role)
    flow.step("merge a role", "PATCH", f"{roles}/flow-role", annotations, MERGE)
    flow.step("delete a role", "DELETE", f"{roles}/flow-role")


MUTATIONS: dict[str, list[Object]] = {
    "add data": [{"op": "add", "path": "/data/new", "value": "1"}],
    "add a finalizer": [{"op": "add", "path": "/metadata/finalizers", "value": ["flow.dev/x"]}],
    "set an annotation": [{"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}],
    "set system fields": [
        {"op": "add", "path": "/metadata/generation", "value": 5},
        {"op": "add", "path": "/metadata/uid", "value": "wrong"},
        {"op": "add", "path": "/metadata/creationTimestamp", "value": "2020-01-01T00:00:00Z"},
    ],
    "remove managed fields": [{"op": "remove", "path": "/metadata/managedFields"}],
    "break managed fields": [{"op": "add", "path": "/metadata/managedFields/0/fieldsType", "value": "X"}],
    "set a wrong type": [{"op": "add", "path": "/data/new", "value": 1}],
    "set an unknown field": [{"op": "add", "path": "/unknown", "value": 1}],
    "set an invalid value": [{"op": "add", "path": "/data/a~1b", "value": "1"}],
    "change the kind": [{"op": "replace", "path": "/kind", "value": "Secret"}],
    "remove the kind": [{"op": "remove", "path": "/kind"}],
    "change the namespace": [{"op": "replace", "path": "/metadata/namespace", "value": "default"}],
    "change the name": [{"op": "replace", "path": "/metadata/name", "value": "renamed"}],
}
CUSTOM_MUTATIONS: dict[str, list[Object]] = {
    "set the spec": [{"op": "add", "path": "/spec/size", "value": 7}],
    "set the status": [{"op": "add", "path": "/status", "value": {"phase": "Mutated"}}],
    "set system fields": MUTATIONS["set system fields"],
    "set an unknown field": [{"op": "add", "path": "/spec/unknown", "value": 1}],
    "set a wrong type": [{"op": "add", "path": "/spec/size", "value": "1"}],
    "set an invalid value": [{"op": "add", "path": "/spec/size", "value": 0}],
    "remove a default": [{"op": "remove", "path": "/spec/colour"}],
    "remove the kind": MUTATIONS["remove the kind"],
    "change the version": [{"op": "replace", "path": "/apiVersion", "value": f"{GROUP}/v2"}],
    "set wrong labels": [{"op": "add", "path": "/metadata/labels/x", "value": 1}],
    "set a null": [{"op": "add", "path": "/spec/size", "value": None}],
}


def mutate(flow: Flow) -> None:
    flow.must("POST", MAPS, config_map("mutated", a="1"))
    flow.must("POST", GADGETS, gadget("mutated", spec={"size": 1}))
    for path, make, mutations in (
        (MAPS, config_map, MUTATIONS),
        (GADGETS, lambda name, **_: gadget(name, spec={"size": 1}), CUSTOM_MUTATIONS),
    ):
        kind = path.rpartition("/")[2]
        for number, (name, operations) in enumerate(mutations.items()):
            answers = {"/mutate": patch(*operations)}
            body = make(f"mutated-{number}", a="1")
            flow.step(f"{kind}: {name} at a creation", "POST", path, body, answers=answers)
            body = {"metadata": {"labels": {"n": str(number)}}}
            flow.step(
                f"{kind}: {name} at an update", "PATCH", f"{path}/mutated", body, MERGE, answers=answers
            )
            flow.must("PATCH", f"{path}/mutated", {"metadata": {"finalizers": None}}, MERGE)
    # The first webhook is called again if the second one changes the object.
    changed = {"/again": patch({"op": "add", "path": "/data/again", "value": "1"})}
    flow.step("reinvoke", "POST", MAPS, config_map("reinvoked", a="1"), answers=changed)
    same = {"/again": patch({"op": "add", "path": "/data/a", "value": "1"})}
    flow.step("reinvoke nothing", "POST", MAPS, config_map("not-reinvoked", a="1"), answers=same)
    body = config_map("beta", {"beta": "yes"}, a="1")
    flow.step("review in v1beta1", "POST", f"{MAPS}?dryRun=All", body)


def late(given: Object) -> Reply | None:
    """A response after the time limit of the webhook."""
    threading.Event().wait(1.5)  # The limit is a second, and cannot be less.
    return allow()(given)


def review(**changes: Any) -> Answer:
    """A review with changed members; those with nothing are removed."""

    def answer(given: Object) -> Reply:
        response = {"uid": given["request"]["uid"], "allowed": True}
        full = {"apiVersion": given["apiVersion"], "kind": given["kind"], "response": response, **changes}
        return Reply({key: value for key, value in full.items() if value is not None})

    return answer


STATUS = {"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "failed", "code": 500}
BAD_ANSWERS: dict[str, Answer] = {
    "another uid": respond({"uid": "wrong", "allowed": True}),
    "no uid": respond({"uid": None, "allowed": True}),
    "no response": review(response=None),
    "a null response": raw(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": None}
    ),
    "an empty response": review(response={}),
    "another kind": review(kind="Review"),
    "no kind": review(kind=None),
    "no version": review(apiVersion=None),
    "neither kind nor version": review(kind=None, apiVersion=None),
    "an older version": review(apiVersion="admission.k8s.io/v1beta1"),
    "an unknown version": review(apiVersion="admission.k8s.io/v2"),
    "another group": review(apiVersion="example.com/v1"),
    "a status object": raw(STATUS),
    "no JSON": raw(b"this is no JSON", content_type="text/plain"),
    "half of JSON": raw(b'{"apiVersion": '),
    "HTML": raw(b"<html></html>", content_type="text/html"),
    "a list": raw([]),
    "a text": raw("text"),
    "nothing": raw(b""),
    "allowed as a text": respond({"allowed": "true"}),
    "warnings as a text": respond({"allowed": True, "warnings": "text"}),
    "bad request": raw(b"wrong\n", 400, "text/plain"),
    "unauthorized": raw(b"wrong", 401, "text/plain"),
    "forbidden": raw(b"wrong", 403, "text/plain"),
    "not found": raw(b"wrong", 404, "text/plain"),
    "method not allowed": raw(b"wrong", 405, "text/plain"),
    "conflict": raw(b"wrong", 409, "text/plain"),
    "unprocessable": raw(b"wrong", 422, "text/plain"),
    "server error": raw(b"wrong\n", 500, "text/plain"),
    "server error with JSON": raw({"error": "wrong"}, 500),
    "server error with a status": raw(STATUS, 500),
    "server error with nothing": raw(b"", 500, "text/plain"),
    "bad gateway": raw(b"<html>wrong</html>", 502, "text/html"),
    "unavailable": raw(b"wrong", 503, "text/plain"),
    "created": raw({}, 201),
    "teapot": raw(b"wrong", 418, "text/plain"),
    "closed connection": hang_up,
}


def answer_badly(flow: Flow) -> None:
    for name, answer in BAD_ANSWERS.items():
        body = config_map("bad", {"ignored": "yes"}, a="1")
        path = f"{MAPS}?dryRun=All"
        flow.step(
            f"mutating: {name}", "POST", path, config_map("bad"), answers={"/mutate": answer}, calls=False
        )
        flow.step(f"ignored: {name}", "POST", path, body, answers={"/ignored": answer}, calls=False)
        answers = {"/validate": answer}
        flow.step(f"validating: {name}", "POST", path, config_map("bad"), answers=answers, calls=False)
    with_patch = {"/validate": patch({"op": "add", "path": "/data", "value": {}})}
    flow.step("validating: a patch", "POST", f"{MAPS}?dryRun=All", config_map("bad"), answers=with_patch)
    answers = {"/slow": late}
    body = config_map("bad", {"slow": "yes"})
    flow.step("a late answer", "POST", f"{MAPS}?dryRun=All", body, answers=answers, calls=False)
    typed = {"/validate": allow(patchType="JSONPatch")}
    flow.step("validating: a patch type", "POST", f"{MAPS}?dryRun=All", config_map("bad"), answers=typed)


BAD_PATCHES: dict[str, Answer] = {
    "no list": patch_text('{"op": "add"}'),
    "no operations": patch_text("[]"),
    "no JSON": patch_text("none"),
    "half of JSON": patch_text("[{"),
    "no objects": patch_text("[1]"),
    "a null": patch_text("null"),
    "an unknown operation": patch({"op": "invent", "path": "/data/a"}),
    "no operation": patch({"path": "/data/a"}),
    "no path": patch({"op": "add", "value": 1}),
    "remove a missing key": patch({"op": "remove", "path": "/data/missing"}),
    "remove a missing parent": patch({"op": "remove", "path": "/spec/missing"}),
    "replace a missing key": patch({"op": "replace", "path": "/data/missing", "value": "1"}),
    "replace a missing parent": patch({"op": "replace", "path": "/spec/missing", "value": "1"}),
    "add to a missing parent": patch({"op": "add", "path": "/spec/missing", "value": "1"}),
    "a failed test": patch({"op": "test", "path": "/data/a", "value": "2"}),
    "a test of a missing parent": patch({"op": "test", "path": "/spec/a", "value": "2"}),
    "move a missing key": patch({"op": "move", "from": "/data/missing", "path": "/data/b"}),
    "copy a missing parent": patch({"op": "copy", "from": "/spec/missing", "path": "/data/b"}),
    "an index that is none": patch({"op": "add", "path": "/metadata/managedFields/x", "value": {}}),
    "an index too large": patch({"op": "remove", "path": "/metadata/managedFields/9"}),
    "no type": patch({"op": "add", "path": "/data/b", "value": "1"}, patchType=None),
    "an empty type": patch({"op": "add", "path": "/data/b", "value": "1"}, patchType=""),
    "another type": patch({"op": "add", "path": "/data/b", "value": "1"}, patchType="MergePatch"),
    "a type without a patch": allow(patchType="JSONPatch"),
    "no base64": allow(patchType="JSONPatch", patch="this is no base64!"),
    "half of base64": allow(patchType="JSONPatch", patch="W3si"[:3]),
    "a patch that is plain": allow(patchType="JSONPatch", patch=[{"op": "add", "path": "/data/b"}]),
    "a denial with a patch": respond(
        {"allowed": False, "patchType": "JSONPatch", "patch": base64.b64encode(b"[]").decode()}
    ),
    "the whole object": patch({"op": "replace", "path": "", "value": {}}),
}


def patch_badly(flow: Flow) -> None:
    for name, answer in BAD_PATCHES.items():
        for hook_name, labels in (("mutate", {}), ("ignored", {"ignored": "yes"})):
            body = config_map("bad", labels, a="1")
            path = f"{MAPS}?dryRun=All"
            step = f"patch of {hook_name}: {name}"
            flow.step(step, "POST", path, body, answers={f"/{hook_name}": answer}, calls=False)


DENIALS: dict[str, Answer] = {
    "nothing": deny(),
    "a message": deny(message="no"),
    "a reason": deny(reason="NotFound"),
    "an unknown reason": deny(reason="Because", message="no"),
    "a code": deny(code=418),
    "a success": deny(code=200, status="Success", message="no"),
    "a redirect": deny(code=302, message="no"),
    "details": deny(
        code=422,
        reason="Invalid",
        message="no",
        details={"name": "n", "kind": "k", "causes": [{"reason": "r", "message": "m", "field": "f"}]},
    ),
    "a retry": deny(code=429, reason="TooManyRequests", details={"retryAfterSeconds": 1}),
    "metadata": deny(message="no", metadata={"resourceVersion": "5"}),
    "lines": deny(message="one\ntwo"),
    "warnings": respond({"allowed": False, "warnings": ["careful"]}),
}


def deny_requests(flow: Flow) -> None:
    for name, answer in DENIALS.items():
        for hook_name in ("mutate", "validate"):
            answers = {f"/{hook_name}": answer}
            step = f"{hook_name} denies with {name}"
            flow.step(step, "POST", MAPS, config_map("denied"), answers=answers, calls=False)
    body = config_map("denied", {"second": "yes"})
    # All validating webhooks are called.
    flow.step("the first one denies", "POST", MAPS, body, answers={"/validate": deny(message="first")})
    flow.step("the second one denies", "POST", MAPS, body, answers={"/second": deny(message="second")})
    flow.step("a mutating one denies", "POST", MAPS, body, answers={"/mutate": deny(message="mutating")})


WARNINGS: dict[str, list[Any]] = {
    "one": ["careful"],
    "equal ones": ["careful", "careful", "other"],
    "an empty one": ["", "other"],
    "lines": ["one\ntwo", "other"],
    "a tab": ["one\ttwo"],
    "control characters": ["one\x01two", "other"],
    "quotes": ['a "quoted" \\ text'],
    "other scripts": ["Vorsicht: schön ✓"],
    "spaces": ["  careful  "],
    "a long one": ["x" * 300],
    "a very long one": ["y" * 5000],
    "long ones": [f"{number:03}" + "z" * 300 for number in range(30)],
    "many short ones": [f"{number:03}" + "s" * 100 for number in range(60)],
    "long ones after a short one": ["short", "a" * 4000, "b" * 200, "c" * 300],
}


def warn(flow: Flow) -> None:
    for name, texts in WARNINGS.items():
        for hook_name in ("mutate", "validate"):
            step, answers = f"{hook_name} warns: {name}", {f"/{hook_name}": allow(warnings=texts)}
            path = f"{MAPS}?dryRun=All"
            flow.step(step, "POST", path, config_map("warned"), answers=answers, calls=False)
    answers = {"/mutate": allow(warnings=["from the first", "both"]), "/validate": allow(warnings=["both"])}
    flow.step("both warn", "POST", f"{MAPS}?dryRun=All", config_map("warned"), answers=answers, calls=False)
    unknown = {**config_map("warned"), "unknown": 1}
    flow.step("a webhook and the server warn", "POST", f"{MAPS}?dryRun=All", unknown, answers=answers)
