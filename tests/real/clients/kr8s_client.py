"""`kr8s`, with its synchronous functions."""

from __future__ import annotations

import os
from typing import Any

import kr8s
from kinds import DEPLOYMENTS, Kind
from kr8s.objects import new_class
from selector_text import text_of


class Kr8sClient:
    """Classes of objects; merge patches and JSON patches."""

    features = frozenset(("json", "since"))

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._api = kr8s.api(kubeconfig=os.environ["KUBECONFIG"], namespace=namespace)
        self._classes: dict[Kind, Any] = {}

    def close(self) -> None:
        pass

    def _class(self, kind: Kind) -> Any:
        if kind not in self._classes:
            options = {"version": kind.api_version, "plural": kind.plural, "namespaced": kind.is_namespaced}
            scalable = kind.name in ("Deployment", "Gadget")
            self._classes[kind] = new_class(kind.name, asyncio=False, scalable=scalable, **options)
        return self._classes[kind]

    def _object(self, kind: Kind, body: Any) -> Any:
        place = {"namespace": self.namespace} if kind.is_namespaced else {}
        return self._class(kind)({**body, "metadata": {**body["metadata"], **place}}, api=self._api)

    def create(self, kind: Kind, body: Any, *, dry_run: bool = False) -> Any:
        made = self._object(kind, body)
        made.create()
        return made.to_dict()

    def get(self, kind: Kind, name: str, *, subresource: str | None = None) -> Any:
        found = self._object(kind, kind.object(name))
        found.refresh()
        return found.to_dict()

    def list(self, kind: Kind, *, labels: Any = (), fields: Any = ()) -> Any:
        options = {"label_selector": text_of(labels), "field_selector": text_of(fields)}
        found = self._api.get(self._class(kind), namespace=self.namespace, **options)
        return {"items": [item.to_dict() for item in found]}

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
    ) -> Any:
        found = self._object(kind, kind.object(name))
        found.patch(patch, subresource=subresource, type=dialect)
        return found.to_dict()

    def delete(self, kind: Kind, name: str, *, policy: str | None = None, uid: str | None = None) -> Any:
        return self._object(kind, kind.object(name)).delete(propagation_policy=policy)

    def watch(self, kind: Kind, since: str | None, count: int, *, labels: Any = ()) -> Any:
        options = {"namespace": self.namespace, "label_selector": text_of(labels), "since": since}
        stream = self._api.watch(self._class(kind), **options)
        events = []
        for event, found in stream:
            events.append((event, found.to_dict()))
            if len(events) == count:
                break
        stream.close()
        return events

    def error_of(self, error: Exception) -> dict[str, Any] | None:
        if isinstance(error, kr8s.ServerError):
            return error.status if isinstance(error.status, dict) else {"message": str(error)}
        return {"message": str(error)} if isinstance(error, kr8s.NotFoundError) else None

    def extras(self, outcomes: Any, kind: Kind) -> None:
        """Labels, owners, scaling, waiting, discovery, and who the user is."""
        step = outcomes.step

        def changed(function: str, *args: Any, of: Kind = kind, name: str = "three") -> Any:
            found = self._object(of, of.object(name))
            found.refresh()
            getattr(found, function)(*args)
            return found.to_dict()

        step("label", changed, "label", {"labelled": "yes", "other": "yes"})
        step("remove a label", changed, "label", "other-")
        step("remove a missing label", changed, "label", "missing-")
        step("annotate", changed, "annotate", {"annotated": "yes"})
        step("set the owner", changed, "set_owner", self._existing(kind, "one"))
        step("scale", changed, "scale", 2)
        step("scale down", changed, "scale", 0, of=DEPLOYMENTS, name="web")
        step("wait", changed, "wait", "jsonpath='{.spec.replicas}'=2")
        step("exists", self._object(kind, kind.object("three")).exists)
        step("get by name", lambda: self._class(kind).get("three", self.namespace, api=self._api).to_dict())
        named = ("name", "kind", "namespaced", "singularName", "version", "verbs")
        resources = [item for item in self._api.api_resources() if item["version"] == kind.api_version]
        step("discovery", lambda: [{key: item[key] for key in named} for item in resources])
        step("look the kind up", self._api.lookup_kind, f"{kind.plural}.{kind.group}")
        step("version", lambda: sorted(self._api.version()))

    def _existing(self, kind: Kind, name: str) -> Any:
        found = self._object(kind, kind.object(name))
        found.refresh()
        return found
