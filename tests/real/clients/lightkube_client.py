"""`lightkube`."""

from __future__ import annotations

from typing import Any

import httpx2
import lightkube
from kinds import DEPLOYMENTS, Kind
from lightkube import operators
from lightkube.core.resource import NamespacedResource
from lightkube.generic_resource import create_namespaced_resource
from lightkube.resources import apiextensions_v1, apps_v1, core_v1
from lightkube.types import CascadeType, PatchType

DIALECTS = {
    "merge": PatchType.MERGE,
    "json": PatchType.JSON,
    "strategic": PatchType.STRATEGIC,
    "apply": PatchType.APPLY,
}
MODULES = {"": core_v1, "apps": apps_v1, "apiextensions.k8s.io": apiextensions_v1}


class LightkubeClient:
    """Built-in kinds with their models, custom ones as generic resources."""

    features = frozenset(
        ("replace", "json", "strategic", "apply", "apply-status", "dry-run", "since", "evict")
    )

    def __init__(self, namespace: str) -> None:
        self._client = lightkube.Client(namespace=namespace)
        self.namespace = namespace

    def close(self) -> None:
        self._client.close()

    def _class(self, kind: Kind, subresource: str | None = None) -> Any:
        if kind.group in MODULES:
            found = getattr(MODULES[kind.group], kind.name)
        else:
            found = create_namespaced_resource(kind.group, kind.version, kind.name, kind.plural)
        return found if subresource is None else getattr(found, subresource.capitalize())

    def _place(self, kind: Kind) -> dict[str, str]:
        return {"namespace": self.namespace} if kind.is_namespaced else {}

    def create(self, kind: Kind, body: Any, *, dry_run: bool = False) -> Any:
        made = self._client.create(self._class(kind).from_dict(body), dry_run=dry_run)
        return made.to_dict()

    def get(self, kind: Kind, name: str, *, subresource: str | None = None) -> Any:
        return self._client.get(self._class(kind, subresource), name, **self._place(kind)).to_dict()

    def list(self, kind: Kind, *, labels: Any = (), fields: Any = ()) -> Any:
        options = {"labels": selector_of(labels), "fields": selector_of(fields), **self._place(kind)}
        # Pages are requested one after another.
        found = self._client.list(self._class(kind), chunk_size=2, **options)
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
        options = {"patch_type": DIALECTS[dialect], "field_manager": manager, "force": force}
        resource = self._class(kind, subresource)
        return self._client.patch(resource, name, patch, **options, **self._place(kind)).to_dict()

    def replace(self, kind: Kind, name: str, body: Any, *, subresource: str | None = None) -> Any:
        body = self._class(kind, subresource).from_dict(body)
        return self._client.replace(body, name, **self._place(kind)).to_dict()

    def delete(self, kind: Kind, name: str, *, policy: str | None = None, uid: str | None = None) -> Any:
        cascade = {} if policy is None else {"cascade": CascadeType(policy)}
        return self._client.delete(self._class(kind), name, **cascade, **self._place(kind))

    def evict(self, name: str) -> Any:
        eviction = core_v1.Pod.Eviction.from_dict({"metadata": {"name": name}})
        self._client.create(eviction, name, namespace=self.namespace)

    def watch(self, kind: Kind, since: str | None, count: int, *, labels: Any = ()) -> Any:
        options = {"labels": selector_of(labels), "resource_version": since, **self._place(kind)}
        stream = self._client.watch(self._class(kind), server_timeout=20, **options)
        events = []
        for event, found in stream:
            events.append((event, found.to_dict()))
            if len(events) == count:
                break
        stream.close()
        return events

    def error_of(self, error: Exception) -> dict[str, Any] | None:
        if isinstance(error, lightkube.ApiError):
            return error.status.to_dict()
        if isinstance(error, httpx2.HTTPStatusError):  # the path of an unknown kind answers with a text
            return {"code": error.response.status_code, "message": error.response.text}
        return None

    def extras(self, outcomes: Any, kind: Kind) -> None:
        """Labels, objects that are applied, and conditions."""
        step, resource = outcomes.step, self._class(kind)
        assert issubclass(resource, NamespacedResource)
        step("set", lambda: self._client.set(resource, "three", labels={"set": "yes"}).to_dict())
        body = resource.from_dict(kind.object("lightkube", spec={"size": 2}))
        step("apply", lambda: self._client.apply(body, field_manager="lightkube").to_dict())
        body = resource.from_dict(kind.object("lightkube", spec={"size": 3}))
        step("apply again", lambda: self._client.apply(body, field_manager="lightkube").to_dict())
        step("apply as another", lambda: self._client.apply(body, field_manager="another").to_dict())
        condition = {"type": "Ready", "status": "True", "reason": "Tested"}
        status = {"status": {"conditions": [condition]}}
        self.patch(kind, "three", status, subresource="status")
        step("wait", lambda: self._client.wait(resource, "three", for_conditions=["Ready"]).to_dict())
        scale = self._class(DEPLOYMENTS, "scale")
        step("get a scale", lambda: self._client.get(scale, "web").to_dict())


def selector_of(selector: Any) -> list[tuple[str, Any]] | None:
    """The selector as lightkube takes it."""
    made = {
        "=": lambda values: operators.equal(*values),
        "!=": lambda values: operators.not_equal(*values),
        "in": operators.in_,
        "notin": operators.not_in,
        "exists": lambda _: operators.exists(),
        "absent": lambda _: operators.not_exists(),
    }
    return [(key, made[operator](values)) for key, operator, values in selector] or None
