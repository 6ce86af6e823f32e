"""Steps with a conversion webhook: a custom kind with two versions."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from tests.real.webhooks.flow import APPLY, JSON_PATCH, MERGE, Flow
from tests.support.webhooks import Answer, Object, Reply, hang_up, raw

NAMESPACE = "default"
GROUP = "conversion.flows.testing.kopf.dev"
V1 = f"/apis/{GROUP}/v1/namespaces/{NAMESPACE}/hosts"
V2 = f"/apis/{GROUP}/v2/namespaces/{NAMESPACE}/hosts"


def crd(flow: Flow) -> Object:
    """Hosts have an address in v1, and in v2, which is stored, a name and a port."""

    def version(name: str, storage: bool, **properties: Object) -> Object:
        status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        spec = {"type": "object", "properties": properties}
        schema = {"type": "object", "properties": {"spec": spec, "status": status}}
        return {
            "name": name,
            "served": True,
            "storage": storage,
            "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}},
        }

    text, number = {"type": "string"}, {"type": "integer", "maximum": 65535}
    versions = [
        version("v1", False, address=text, note={"type": "string", "default": "none"}),
        version("v2", True, host=text, port=number, tls={"type": "boolean", "default": True}),
    ]
    webhook = {
        "conversionReviewVersions": ["v1"],
        "clientConfig": flow.webhook.client_config("/convert"),
    }
    names = {"plural": "hosts", "singular": "host", "kind": "Host", "listKind": "HostList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"hosts.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": names,
            "versions": versions,
            "conversion": {"strategy": "Webhook", "webhook": webhook},
        },
    }


def host(version: str, name: str, **spec: Any) -> Object:
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "Host",
        "metadata": {"name": name},
        "spec": spec,
    }


def converted(given: Object, desired: str) -> Object:
    """An object in the other version."""
    it = copy.deepcopy(given)
    it["apiVersion"] = desired
    spec = it.get("spec") or {}
    if desired.endswith("/v1"):
        it["spec"] = {"address": f"{spec.get('host', '')}:{spec.get('port', 80)}"}
    else:
        name, _, port = spec.get("address", "").partition(":")
        it["spec"] = {"host": name, "port": int(port or 80)}
    return it


def convert(
    change: Callable[[Object], Any] = lambda it: it, *, result: Object | None = None, **members: Any
) -> Answer:
    """Convert the objects, with a change of each one and of the review; nothing removes a member."""

    def answer(review: Object) -> Reply:
        request = review["request"]
        objects = [change(converted(it, request["desiredAPIVersion"])) for it in request["objects"]]
        response = {
            "uid": request["uid"],
            "result": {"status": "Success"} if result is None else result,
            "convertedObjects": objects,
        }
        response |= members.get("response", {})
        full = {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
        full |= {key: value for key, value in members.items() if key != "response"}
        return Reply({key: value for key, value in full.items() if value is not None})

    return answer


def with_metadata(**members: Any) -> Answer:
    """Change members of the metadata."""
    return convert(lambda it: {**it, "metadata": {**it["metadata"], **members}})


def without(*keys: str) -> Answer:
    return convert(lambda it: {key: value for key, value in it.items() if key not in keys})


def run(flow: Flow) -> None:
    """All steps.

    The number of conversions is not compared: kube-apiserver also fills a cache for each version.
    """
    flow.answers = {"/convert": convert()}
    flow.webhook.answers = flow.answers
    flow.must("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd(flow))
    flow.until_served(V1)
    flow.until_served(V2)
    use_both_versions(flow)
    manage_fields(flow)
    change_metadata(flow)
    fail(flow)


def use_both_versions(flow: Flow) -> None:
    def step(name: str, method: str, path: str, body: Any = None, content: str = "application/json") -> None:
        flow.step(name, method, path, body, content, calls=False)

    step("create in v1", "POST", V1, host("v1", "one", address="a:1"))
    step("create in v2", "POST", V2, host("v2", "two", host="b", port=2))
    for name, path in (("v1", V1), ("v2", V2)):
        step(f"get one in {name}", "GET", f"{path}/one")
        step(f"get two in {name}", "GET", f"{path}/two")
        step(f"list in {name}", "GET", path)
    step("create in v1 in a dry run", "POST", f"{V1}?dryRun=All", host("v1", "dry", address="a:1"))
    step("create an invalid one in v2", "POST", V2, host("v2", "bad", host="b", port=99999))
    # Only the version of the request is validated.
    step("create one in v1 that is invalid in v2", "POST", V1, host("v1", "bad", address="a:99999"))
    step("create unknown fields in v1", "POST", V1, host("v1", "unknown", address="a:1", other=1))
    step("merge in v1", "PATCH", f"{V1}/two", {"spec": {"address": "c:3"}}, MERGE)
    step("merge in v2", "PATCH", f"{V2}/one", {"spec": {"port": 4}}, MERGE)
    operations = [{"op": "replace", "path": "/spec/address", "value": "d:5"}]
    step("json patch in v1", "PATCH", f"{V1}/one", operations, JSON_PATCH)
    step("merge nothing in v1", "PATCH", f"{V1}/one", {}, MERGE)
    step("merge the same in v1", "PATCH", f"{V1}/one", {"spec": {"address": "d:5"}}, MERGE)
    step("merge a lost field in v1", "PATCH", f"{V1}/one", {"spec": {"note": "lost"}}, MERGE)
    current = flow.must("GET", f"{V1}/one")
    step("replace in v1", "PUT", f"{V1}/one", {**current, "spec": {"address": "e:6"}})
    step("merge a status in v1", "PATCH", f"{V1}/one/status", {"status": {"phase": "x"}}, MERGE)
    step("get after all in v2", "GET", f"{V2}/one")
    step("select in v1", "GET", f"{V1}?fieldSelector=metadata.name%3Done")
    step("page in v1", "GET", f"{V1}?limit=500")
    held = host("v1", "held", address="a:1")
    held["metadata"]["finalizers"] = ["flow.dev/held"]
    step("create with a finalizer in v1", "POST", V1, held)
    step("delete with a finalizer in v1", "DELETE", f"{V1}/held")
    step("release in v2", "PATCH", f"{V2}/held", {"metadata": {"finalizers": None}}, MERGE)
    step("delete in v1", "DELETE", f"{V1}/two")


def manage_fields(flow: Flow) -> None:
    def apply(name: str, path: str, body: Object, manager: str, force: str = "false") -> None:
        target = f"{path}/{body['metadata']['name']}?fieldManager={manager}&force={force}"
        flow.step(name, "PATCH", target, body, APPLY, calls=False)

    apply("apply in v1", V1, host("v1", "applied", address="a:1"), "first")
    apply("apply the same in v1", V1, host("v1", "applied", address="a:1"), "first")
    apply("apply by another in v2", V2, host("v2", "applied", host="a", port=1), "second")
    apply("apply a conflict in v2", V2, host("v2", "applied", host="b"), "second")
    apply("apply by force in v2", V2, host("v2", "applied", host="b"), "second", "true")
    apply("apply by the first in v2", V2, host("v2", "applied", port=3), "first", "true")
    flow.step(
        "merge after an apply",
        "PATCH",
        f"{V1}/applied?fieldManager=third",
        {"spec": {"address": "c:9"}},
        MERGE,
        calls=False,
    )
    flow.step("get the managers in v1", "GET", f"{V1}/applied", calls=False)


METADATA: dict[str, Answer] = {
    "labels": with_metadata(labels={"a": "b"}),
    "annotations": with_metadata(annotations={"a": "b"}),
    "null labels": with_metadata(labels=None),
    "wrong labels": with_metadata(labels={"a b": "c"}),
    "wrong annotations": with_metadata(annotations={"a b": "c"}),
    "labels of a wrong type": with_metadata(labels=["a"]),
    "a label of a wrong type": with_metadata(labels={"a": 1}),
    "finalizers": with_metadata(finalizers=["flow.dev/x"]),
    "a version": with_metadata(resourceVersion="1", generation=7, creationTimestamp=None),
    "a name": with_metadata(name="other"),
    "a namespace": with_metadata(namespace="other"),
    "a uid": with_metadata(uid="other"),
    "no uid": with_metadata(uid=None),
    "no metadata": without("metadata"),
    "metadata of a wrong type": convert(lambda it: {**it, "metadata": "x"}),
    "empty metadata": convert(lambda it: {**it, "metadata": {}}),
}


def change_metadata(flow: Flow) -> None:
    for name, answer in METADATA.items():
        convert_with(flow, f"metadata: {name}", answer)


FAILURES: dict[str, Answer] = {
    "a message": convert(result={"status": "Failure", "message": "not today"}),
    "no message": convert(result={"status": "Failure"}),
    "a reason": convert(result={"status": "Failure", "reason": "Because", "code": 409}),
    "no status": convert(result={}),
    "fewer objects": convert(response={"convertedObjects": []}),
    "no objects": convert(response={"convertedObjects": None}),
    "another version": convert(lambda it: {**it, "apiVersion": f"{GROUP}/v3"}),
    "another group": convert(lambda it: {**it, "apiVersion": "example.com/v1"}),
    "another kind": convert(lambda it: {**it, "kind": "Guest"}),
    "no kind": without("kind"),
    "no version": without("apiVersion"),
    "no spec": without("spec"),
    "a null": convert(lambda _: None),
    "a text": convert(lambda _: "text"),
    "another uid": convert(response={"uid": "wrong"}),
    "no uid": convert(response={"uid": None}),
    "no response": raw({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}),
    "another review": convert(kind="Review"),
    "no kind of the review": convert(kind=None),
    "no version of the review": convert(apiVersion=None),
    "an older review": convert(apiVersion="apiextensions.k8s.io/v1beta1"),
    "a status object": raw({"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "failed"}),
    "no JSON": raw(b"this is no JSON", content_type="text/plain"),
    "half of JSON": raw(b'{"apiVersion": '),
    "nothing": raw(b""),
    "server error": raw(b"wrong\n", 500, "text/plain"),
    "not found": raw(b"wrong\n", 404, "text/plain"),
    "closed connection": hang_up,
    "an invalid object": convert(lambda it: {**it, "spec": {"host": 1, "address": 1}}),
}


def fail(flow: Flow) -> None:
    for name, answer in FAILURES.items():
        convert_with(flow, f"failure: {name}", answer)


def convert_with(flow: Flow, name: str, answer: Answer) -> None:
    """Read, create and change objects, while the webhook answers so."""
    answers = {"/convert": answer}
    flow.step(f"{name}: get", "GET", f"{V1}/one", answers=answers, calls=False)
    body = host("v1", "new", address="a:1")
    flow.step(f"{name}: create", "POST", f"{V1}?dryRun=All", body, answers=answers, calls=False)
    patch = {"spec": {"address": "z:9"}}
    flow.step(f"{name}: merge", "PATCH", f"{V1}/one?dryRun=All", patch, MERGE, answers=answers, calls=False)
