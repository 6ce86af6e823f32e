"""Which of the needed permissions the credentials of a command have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kopf._cli.permissions import Permission
from kopf._objects.apierrors import ApiError
from kopf._runtime.client.sync_api import SyncApi

GROUP = "authorization.k8s.io"
ACCESS_REVIEWS = f"/apis/{GROUP}/v1/selfsubjectaccessreviews"
RULES_REVIEWS = f"/apis/{GROUP}/v1/selfsubjectrulesreviews"
NOWHERE = "kopf-no-such-namespace"
"""A namespace that does not exist: its rules are those that are granted in the whole cluster."""


@dataclass(frozen=True)
class KnownRules:
    """The rules of the credentials in a namespace."""

    rules: Collection[Mapping[str, Any]]
    is_complete: bool
    """Whether there are no others, such as those of an authorization webhook."""

    def allow(self, permission: Permission) -> bool:
        """Whether one of the rules grants the permission."""
        return any(_allows(rule, permission) for rule in self.rules)


def missing_permissions(api: SyncApi, permissions: Iterable[Permission]) -> Iterator[Permission]:
    """Those of the permissions that the credentials do not have.

    One request for each namespace reads the rules. If the server cannot list all of them, each permission
    that is not among them is reviewed separately.
    """
    known: dict[str, KnownRules | None] = {}
    for permission in permissions:
        place = permission.namespace or NOWHERE
        if place not in known:
            known[place] = _read_rules(api, place)
        rules = known[place]
        if rules is not None and rules.allow(permission):
            continue
        if (rules is not None and rules.is_complete) or not _is_allowed(api, permission):
            yield permission


def _read_rules(api: SyncApi, namespace: str) -> KnownRules | None:
    body = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    try:
        status = api.request("POST", RULES_REVIEWS, body=body).json.get("status") or {}
    except ApiError:
        return None  # some authorizers do not support it
    is_complete = not status.get("incomplete") and not status.get("evaluationError")
    return KnownRules(status.get("resourceRules") or (), is_complete)


def _allows(rule: Mapping[str, Any], permission: Permission) -> bool:
    def has(field: str, *values: str) -> bool:
        return not {"*", *values}.isdisjoint(rule.get(field) or ())

    _, separator, subresource = permission.resource.partition("/")
    any_of_subresource = (f"*/{subresource}",) if separator else ()
    names = rule.get("resourceNames") or ()
    return (
        has("verbs", permission.verb)
        and has("apiGroups", permission.group)
        and has("resources", permission.resource, *any_of_subresource)
        and (not names or permission.name in names)
    )


def _is_allowed(api: SyncApi, permission: Permission) -> bool:
    resource, _, subresource = permission.resource.partition("/")
    attributes = {
        "verb": permission.verb,
        "group": permission.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": permission.namespace,
        "name": permission.name,
    }
    review: dict[str, Any] = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    return bool(api.request("POST", ACCESS_REVIEWS, body=review).json["status"].get("allowed"))
