"""One flow of requests for all clients. A client takes part in the steps that it has functions for."""

from __future__ import annotations

from typing import Any, Protocol

from kinds import (
    CONFIG_MAPS,
    CRDS,
    DEPLOYMENTS,
    NAMESPACES,
    PODS,
    SECRETS,
    SERVICES,
    Kind,
    crd,
    deployment,
    gadgets,
)
from outcomes import Outcomes

Object = dict[str, Any]
Selector = list[tuple[str, str, tuple[str, ...]]]
"""Requirements of labels or fields: the key, the operator (=, !=, in, notin, exists, absent), the values."""

FINALIZER = "flows.testing.kopf.dev/finalizer"


class Client(Protocol):
    """A client library, or a command, in one namespace. All objects are plain."""

    features: frozenset[str]
    """Its additional features: replace, json, strategic, apply, apply-status, dry-run, pages, since, initial,
    uid, collection, evict."""

    def create(self, kind: Kind, body: Object, *, dry_run: bool = False) -> Object: ...
    def get(self, kind: Kind, name: str, *, subresource: str | None = None) -> Object: ...
    def list(self, kind: Kind, *, labels: Selector = ..., fields: Selector = ...) -> Object: ...
    def pages(self, kind: Kind, limit: int) -> list[int]:
        """The numbers of objects per page."""

    def patch(
        self,
        kind: Kind,
        name: str,
        patch: Any,
        *,
        dialect: str = "merge",
        subresource: str | None = None,
        manager: str | None = None,
        force: bool = False,
    ) -> Object: ...
    def replace(self, kind: Kind, name: str, body: Object, *, subresource: str | None = None) -> Object: ...
    def delete(
        self,
        kind: Kind,
        name: str,
        *,
        policy: str | None = None,
        uid: str | None = None,
        version: str | None = None,
    ) -> Any: ...
    def delete_collection(self, kind: Kind, labels: Selector) -> Any: ...
    def evict(self, name: str) -> Any: ...
    def watch(
        self, kind: Kind, since: str | None, count: int, *, labels: Selector = ...
    ) -> list[tuple[str, Object]]: ...
    def watch_initial(self, kind: Kind, count: int, labels: Selector) -> list[tuple[str, Object]]:
        """Watch with initial events and bookmarks."""

    def error_of(self, error: Exception) -> Object | None: ...
    def extras(self, outcomes: Outcomes, kind: Kind) -> None:
        """Steps with functions that only this client has."""


class Flow:
    """A flow of one client."""

    def __init__(self, client: Client, name: str, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self.outcomes = Outcomes(client.error_of)
        self.step, self.until = self.outcomes.step, self.outcomes.until
        self.gadgets = gadgets(name)

    def run(self) -> dict[str, Any]:
        """All steps, in an order that matters."""
        self.create_crd()
        self.create()
        self.read()
        self.patch()
        self.apply()
        self.replace()
        self.change_subresources()
        self.watch()
        self.delete()
        self.delete_with_dependents()
        self.use_built_in_kinds()
        self.client.extras(self.outcomes, self.gadgets)
        self.remove()
        return self.outcomes.steps

    def gadget(self, name: str, labels: dict[str, str] | None = None, **spec: Any) -> Object:
        return self.gadgets.object(name, labels, spec=spec)

    def can(self, feature: str) -> bool:
        return feature in self.client.features

    def create_crd(self) -> None:
        client, name = self.client, f"{self.gadgets.plural}.{self.gadgets.group}"
        self.step("create a namespace", lambda: client.create(NAMESPACES, NAMESPACES.object(self.namespace)))
        # The status follows when the server has accepted the names.
        self.step("create the CRD", lambda: client.create(CRDS, crd(self.gadgets))["spec"])
        self.step("create the CRD again", client.create, CRDS, crd(self.gadgets))
        self.until("list nothing", lambda: client.list(self.gadgets))
        self.step("get the CRD", lambda: client.get(CRDS, name)["status"])
        wrong = crd(self.gadgets)
        wrong["metadata"]["name"] = "wrong"
        wrong["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["type"] = "thing"
        self.step("create a wrong CRD", client.create, CRDS, wrong)

    def create(self) -> None:
        client, kind = self.client, self.gadgets
        self.step("create one", client.create, kind, self.gadget("one", {"tier": "a"}, size=1))
        self.step(
            "create two", client.create, kind, self.gadget("two", {"tier": "b"}, size=2, colour="green")
        )
        labels = {"tier": "b", "extra": "yes"}
        parts = [{"name": "wheel", "count": 4}, {"name": "door"}]
        self.step("create three", client.create, kind, self.gadget("three", labels, size=3, parts=parts))
        self.step("create one again", client.create, kind, self.gadget("one", size=1))
        self.step("create too small", client.create, kind, self.gadget("small", size=0, colour="pink"))
        self.step("create without a size", client.create, kind, self.gadget("sizeless", colour="red"))
        self.step("create against a rule", client.create, kind, self.gadget("green", size=1, colour="green"))
        self.step("create a wrong name", client.create, kind, self.gadget("Wrong_Name", size=1))
        self.step("create a wrong label", client.create, kind, self.gadget("label", {"a/b/c": "?"}, size=1))
        twice = [{"name": "wheel"}, {"name": "wheel"}]
        self.step("create equal parts", client.create, kind, self.gadget("equal", size=1, parts=twice))
        self.step("create with wrong types", client.create, kind, self.gadget("types", size="1", parts={}))
        self.step("create unknown fields", client.create, kind, self.gadget("unknown", size=1, other=1))
        if self.can("dry-run"):
            self.step("create in a dry run", client.create, kind, self.gadget("dry", size=1), dry_run=True)
            self.step("get after a dry run", client.get, kind, "dry")

    def read(self) -> None:
        client, kind = self.client, self.gadgets
        self.step("get one", client.get, kind, "one")
        self.step("get nothing", client.get, kind, "nothing")
        self.step("list all", client.list, kind)
        selectors: dict[str, Selector] = {
            "equal": [("tier", "=", ("b",))],
            "unequal": [("tier", "!=", ("b",))],
            "in": [("tier", "in", ("a", "b")), ("extra", "absent", ())],
            "notin": [("tier", "notin", ("a", "c"))],
            "exists": [("extra", "exists", ())],
        }
        for name, selector in selectors.items():
            self.step(f"list labels: {name}", client.list, kind, labels=selector)
        for field, value in (("metadata.name", "two"), ("spec.colour", "green"), ("spec.size", "1")):
            self.step(f"list fields: {field}", client.list, kind, fields=[(field, "=", (value,))])
        self.step("list fields: unequal", client.list, kind, fields=[("metadata.name", "!=", ("two",))])
        if self.can("pages"):
            self.step("list pages", client.pages, kind, 2)

    def patch(self) -> None:
        client, kind = self.client, self.gadgets
        self.step("merge", client.patch, kind, "two", {"spec": {"size": 4, "colour": None}})
        self.step("merge metadata", client.patch, kind, "two", {"metadata": {"annotations": {"a": "b"}}})
        self.step("merge wrong values", client.patch, kind, "two", {"spec": {"size": 11, "colour": 1}})
        self.step("merge nothing", client.patch, kind, "two", {})
        self.step("merge another uid", client.patch, kind, "two", {"metadata": {"uid": "wrong"}})
        stale = {"metadata": {"resourceVersion": "1"}, "spec": {"size": 5}}
        self.step("merge a stale version", client.patch, kind, "two", stale)
        self.step("merge into nothing", client.patch, kind, "nothing", {"spec": {"size": 5}})
        if self.can("json"):
            test = {"op": "test", "path": "/spec/size", "value": 4}
            change = {"op": "replace", "path": "/spec/size", "value": 6}
            self.step("json", client.patch, kind, "two", [test, change], dialect="json")
            self.step("json: a failed test", client.patch, kind, "two", [test, change], dialect="json")
            missing = [{"op": "remove", "path": "/spec/missing"}]
            self.step("json: no path", client.patch, kind, "two", missing, dialect="json")
            wrong = [{"op": "invent", "path": "/spec/size"}]
            self.step("json: a wrong operation", client.patch, kind, "two", wrong, dialect="json")
        if self.can("strategic"):
            patch = {"spec": {"size": 7}}
            self.step("strategic: a custom kind", client.patch, kind, "two", patch, dialect="strategic")

    def apply(self) -> None:
        if not self.can("apply"):
            return
        client, kind = self.client, self.gadgets

        def apply(name: str, manager: str, force: bool = False, **spec: Any) -> Object:
            body = self.gadget(name, **spec)
            return client.patch(kind, name, body, dialect="apply", manager=manager, force=force)

        part = [{"name": "wheel", "count": 3}]
        self.step("apply a new object", apply, "applied", "first", size=2, parts=part)
        self.step("apply the same", apply, "applied", "first", size=2, parts=part)
        self.step("apply with a conflict", apply, "applied", "second", size=3, parts=[{"name": "door"}])
        self.step("apply by force", apply, "applied", "second", True, size=3, parts=[{"name": "door"}])
        self.step("apply less", apply, "applied", "second", size=3)
        self.step("apply wrong values", apply, "applied", "second", size=0)
        if self.can("apply-status"):
            status = {"phase": "Applied", "replicas": 1}
            options = {"dialect": "apply", "manager": "status", "subresource": "status"}
            body = {**self.gadget("applied"), "status": status}
            self.step("apply a status", client.patch, kind, "applied", body, **options)
            options["manager"] = "other"
            body = {**body, "status": {"phase": "Other"}}
            self.step("apply a status with a conflict", client.patch, kind, "applied", body, **options)
            self.step("apply a status by force", client.patch, kind, "applied", body, **options, force=True)
        self.apply_deployments()

    def apply_deployments(self) -> None:
        client, app = self.client, {"app": "applied"}

        def apply(manager: str, image: str, force: bool = False) -> Object:
            body = deployment("applied", app, app)
            body["spec"]["template"]["spec"]["containers"] = [{"name": "main", "image": image}]
            options = {"dialect": "apply", "manager": manager, "force": force}
            return client.patch(DEPLOYMENTS, "applied", body, **options)

        self.step("apply a deployment", apply, "first", "nginx:1")
        self.step("apply the same deployment by another", apply, "second", "nginx:1")
        self.step("apply a deployment with a conflict", apply, "second", "nginx:2")
        self.step("apply a deployment by force", apply, "second", "nginx:2", True)

    def replace(self) -> None:
        if not self.can("replace"):
            return
        client, kind = self.client, self.gadgets
        old = client.get(kind, "three")
        new = {**old, "spec": {"size": 9}}
        self.step("replace", client.replace, kind, "three", new)
        self.step("replace a stale version", client.replace, kind, "three", new)
        current = client.get(kind, "three")
        self.step("replace by wrong values", client.replace, kind, "three", {**current, "spec": {"size": 0}})
        missing = self.gadget("nothing", size=1)
        missing["metadata"]["resourceVersion"] = "1"
        self.step("replace nothing", client.replace, kind, "nothing", missing)
        self.step("create a map", client.create, CONFIG_MAPS, CONFIG_MAPS.object("map", data={"a": "b"}))
        again = CONFIG_MAPS.object("map", data={"c": "d"})
        self.step("replace without a version", client.replace, CONFIG_MAPS, "map", again)

    def change_subresources(self) -> None:
        client, kind = self.client, self.gadgets
        status = {"status": {"phase": "Ready", "replicas": 3}, "spec": {"size": 10}}
        self.step("merge the status", client.patch, kind, "one", status, subresource="status")
        both = {"status": {"phase": "Lost"}, "spec": {"size": 8}}
        self.step("merge a status into the object", client.patch, kind, "one", both)
        missing = {"status": {"phase": "Lost"}}
        self.step("merge the status of nothing", client.patch, kind, "nothing", missing, subresource="status")
        scale = {"spec": {"replicas": 5}}
        self.step("merge the scale", client.patch, kind, "one", scale, subresource="scale")
        if self.can("replace"):
            current = client.get(kind, "one")
            new = {**current, "spec": {"size": 2}, "status": {"phase": "Replaced"}}
            self.step("replace the status", client.replace, kind, "one", new, subresource="status")
            self.step("replace a stale status", client.replace, kind, "one", new, subresource="status")
            self.step("get the scale", client.get, kind, "one", subresource="scale")

    def watch(self) -> None:
        client, kind = self.client, self.gadgets
        made = client.create(kind, self.gadget("four", {"tier": "b"}, size=1))
        since = made["metadata"]["resourceVersion"]
        client.patch(kind, "four", {"spec": {"size": 2}})
        client.patch(kind, "four", {"metadata": {"labels": {"tier": "c"}}})
        client.delete(kind, "four")
        existing = len(client.list(kind)["items"])

        def all_objects() -> list[Any]:
            return sorted(client.watch(kind, None, existing), key=lambda it: it[1]["metadata"]["name"])

        self.step("watch from the start", all_objects)
        if self.can("since"):
            events = self.step("watch from a version", client.watch, kind, since, 3)
            resumed = events[0][1]["metadata"]["resourceVersion"]
            self.step("resume", client.watch, kind, resumed, 2)
            selected: Selector = [("tier", "=", ("b",))]
            self.step("watch labels", client.watch, kind, since, 2, labels=selected)
        if self.can("initial"):
            labels = {"initial": "yes"}
            for name in ("first", "second"):
                client.create(CONFIG_MAPS, CONFIG_MAPS.object(f"initial-{name}", labels))
            selected = [("initial", "=", ("yes",))]
            self.step("watch initial events", client.watch_initial, CONFIG_MAPS, 3, selected)

    def delete(self) -> None:
        client, kind = self.client, self.gadgets
        if self.can("uid"):
            self.step("delete another uid", client.delete, kind, "two", uid="wrong")
            self.step("delete another version", client.delete, kind, "two", version="1")
            body = self.gadget("exact", size=1)
            exact = client.create(kind, body)["metadata"]
            versions = {"uid": exact["uid"], "version": exact["resourceVersion"]}
            self.step("delete an exact version", client.delete, kind, "exact", **versions)
        self.step("delete", client.delete, kind, "two")
        self.step("delete again", client.delete, kind, "two")
        body = self.gadget("kept", size=1)
        body["metadata"]["finalizers"] = [FINALIZER]
        self.step("create with a finalizer", client.create, kind, body)
        self.step("delete with a finalizer", client.delete, kind, "kept")
        self.step("get what is deleted", client.get, kind, "kept")
        more = {"metadata": {"finalizers": [FINALIZER, "example.com/another"]}}
        self.step("add a finalizer", client.patch, kind, "kept", more)
        self.step("remove the finalizer", client.patch, kind, "kept", {"metadata": {"finalizers": None}})
        self.step("get what is gone", client.get, kind, "kept")
        if self.can("evict"):
            pod = PODS.object("evicted", spec={"containers": [{"name": "main", "image": "nginx:1"}]})
            client.create(PODS, pod)
            self.step("evict a pod", client.evict, "evicted")
            self.step("get what is evicted", client.get, PODS, "evicted")
            self.step("evict nothing", client.evict, "nothing")
        if self.can("collection"):
            selected: Selector = [("tier", "=", ("b",))]
            self.step("delete a collection", client.delete_collection, kind, selected)
            self.step("list the rest", client.list, kind)

    def delete_with_dependents(self) -> None:
        client = self.client
        for policy in ("Background", "Foreground", "Orphan"):
            owner, dependent = f"owner-{policy.lower()}", f"dependent-{policy.lower()}"
            made = client.create(CONFIG_MAPS, CONFIG_MAPS.object(owner))
            body = CONFIG_MAPS.object(dependent)
            reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "blockOwnerDeletion": True}
            body["metadata"]["ownerReferences"] = [{**reference, "uid": made["metadata"]["uid"]}]
            self.step(f"{policy}: create a dependent", client.create, CONFIG_MAPS, body)
            client.delete(CONFIG_MAPS, owner, policy=policy)
            self.until(f"{policy}: the owner", lambda: client.get(CONFIG_MAPS, owner), fails=True)  # noqa: B023
            if policy == "Orphan":
                self.step("Orphan: the dependent", client.get, CONFIG_MAPS, dependent)
            else:
                self.until(f"{policy}: the dependent", lambda: client.get(CONFIG_MAPS, dependent), fails=True)  # noqa: B023

    def use_built_in_kinds(self) -> None:
        client = self.client
        secret = SECRETS.object("secret", stringData={"a": "b"}, data={"c": "ZA=="})
        self.step("create a secret", client.create, SECRETS, secret)
        self.step(
            "create a wrong secret", client.create, SECRETS, SECRETS.object("wrong", data={"?": "ZA=="})
        )
        frozen = CONFIG_MAPS.object("frozen", data={"a": "b"}, immutable=True)
        self.step("create an immutable map", client.create, CONFIG_MAPS, frozen)
        self.step("change an immutable map", client.patch, CONFIG_MAPS, "frozen", {"data": {"a": "c"}})
        app = {"app": "web"}
        self.step("create a deployment", client.create, DEPLOYMENTS, deployment("web", app, app))
        wrong = deployment("wrong", app, {"app": "other"})
        self.step("create a wrong deployment", client.create, DEPLOYMENTS, wrong)
        selector = {"spec": {"selector": {"matchLabels": {"app": "other"}}}}
        self.step("change a selector", client.patch, DEPLOYMENTS, "web", selector)
        scale = {"spec": {"replicas": 1}}
        self.step("scale a deployment", client.patch, DEPLOYMENTS, "web", scale, subresource="scale")
        if self.can("strategic"):
            side = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "busybox:2"}]}}}}
            self.step("strategic: a list", client.patch, DEPLOYMENTS, "web", side, dialect="strategic")
            delete = [{"name": "side", "$patch": "delete"}]
            gone = {"spec": {"template": {"spec": {"containers": delete}}}}
            self.step("strategic: a deletion", client.patch, DEPLOYMENTS, "web", gone, dialect="strategic")
        ports = [{"port": 80}, {"port": 80}, {"port": 0}]
        wrong = SERVICES.object("web", spec={"ports": ports})
        self.step("create a wrong service", client.create, SERVICES, wrong)

    def remove(self) -> None:
        client, name = self.client, f"{self.gadgets.plural}.{self.gadgets.group}"
        # The garbage collector deletes objects with owners.
        owned = [it for it in client.list(self.gadgets)["items"] if not it["metadata"].get("ownerReferences")]
        for item in owned:
            client.delete(self.gadgets, item["metadata"]["name"])
        self.step("delete the CRD", client.delete, CRDS, name)
        self.until("list an unknown kind", lambda: client.list(self.gadgets), fails=True)
        self.step("delete the namespace", client.delete, NAMESPACES, self.namespace)
