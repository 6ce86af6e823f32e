"""`pykube-ng`."""

from __future__ import annotations

import os
from typing import Any

import pykube
import requests
from kinds import DEPLOYMENTS, Kind
from selector_text import text_of


class PykubeClient:
    """Classes of objects; patches are merge patches."""

    features = frozenset(("since",))

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._api = pykube.HTTPClient(pykube.KubeConfig.from_file(os.environ["KUBECONFIG"]))

    def close(self) -> None:
        self._api.session.close()

    def _class(self, kind: Kind) -> Any:
        base = pykube.objects.NamespacedAPIObject if kind.is_namespaced else pykube.objects.APIObject
        return type(
            kind.name, (base,), {"version": kind.api_version, "endpoint": kind.plural, "kind": kind.name}
        )

    def _object(self, kind: Kind, name: str) -> Any:
        return self._class(kind)(self._api, self._placed(kind, kind.object(name)))

    def _placed(self, kind: Kind, body: Any) -> Any:
        place = {"namespace": self.namespace} if kind.is_namespaced else {}
        return {**body, "metadata": {**body["metadata"], **place}}

    def _query(self, kind: Kind) -> Any:
        return self._class(kind).objects(self._api, namespace=self.namespace if kind.is_namespaced else None)

    def create(self, kind: Kind, body: Any, *, dry_run: bool = False) -> Any:
        made = self._class(kind)(self._api, self._placed(kind, body))
        made.create()
        return made.obj

    def get(self, kind: Kind, name: str, *, subresource: str | None = None) -> Any:
        return self._query(kind).get_by_name(name).obj

    def list(self, kind: Kind, *, labels: Any = (), fields: Any = ()) -> Any:
        selectors = {"selector": text_of(labels), "field_selector": text_of(fields)}
        return self._query(kind).filter(**selectors).response

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
        found = self._object(kind, name)
        found.patch(patch, subresource=subresource)
        return found.obj

    def delete(self, kind: Kind, name: str, *, policy: str | None = None, uid: str | None = None) -> Any:
        return self._object(kind, name).delete(propagation_policy=policy)

    def watch(self, kind: Kind, since: str | None, count: int, *, labels: Any = ()) -> Any:
        query = self._query(kind).filter(selector=text_of(labels)).watch(since=since)
        events = []
        for event in query:
            events.append((event.type, event.object.obj))
            if len(events) == count:
                break
        query.response.close()
        return events

    def error_of(self, error: Exception) -> dict[str, Any] | None:
        if isinstance(error, pykube.exceptions.HTTPError):
            return {"code": error.code, "message": str(error)}
        if isinstance(error, pykube.exceptions.ObjectDoesNotExist):
            return {"message": str(error)}
        if isinstance(error, requests.HTTPError):
            return {"code": error.response.status_code, "body": error.response.text}
        return None

    def extras(self, outcomes: Any, kind: Kind) -> None:
        """Updates, the search for a class, scaling, and tables."""
        step = outcomes.step
        found = step("find the class", lambda: pykube.object_factory(self._api, kind.api_version, kind.name))
        assert found is not None

        def update(name: str, is_strategic: bool) -> Any:
            changed = self._query(kind).get_by_name(name)
            changed.labels["updated"] = "yes"
            changed.obj["spec"]["parts"] = [{"name": "lamp"}]
            changed.update(is_strategic=is_strategic)
            return changed.obj

        step("update strategically", update, "three", True)
        step("update", update, "three", False)

        def update_stale() -> Any:
            stale = self._query(kind).get_by_name("three")
            self.patch(kind, "three", {"spec": {"size": 8}})
            stale.annotations["updated"] = "yes"
            stale.update()
            return stale.obj

        step("update a stale object", update_stale)

        def scale(replicas: int) -> Any:
            deployment = pykube.Deployment.objects(self._api, namespace=self.namespace).get_by_name("web")
            deployment.scale(replicas)
            return deployment.obj["spec"]["replicas"]

        step("scale", scale, 0)
        step("exists", self._object(DEPLOYMENTS, "web").exists)
        step("exists not", self._object(DEPLOYMENTS, "nothing").exists)

        def table() -> Any:
            shown = self._query(kind).as_table()
            return shown.columns, [row["cells"][:2] for row in shown.rows]

        step("table", table)
