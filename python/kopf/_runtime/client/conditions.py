"""Conditions for `wait_for`: functions of an object, or of `None` if it does not exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kopf._objects import dicts
from kopf._objects.bodies import Body

Condition = Callable[[Body | None], bool]


def exists(body: Body | None) -> bool:
    """The object exists, and is not being deleted.

    Args:
        body: The object, or None if there is none.
    """
    return body is not None and not body.metadata.deletion_timestamp


def gone(body: Body | None) -> bool:
    """The object does not exist any more; for `wait_for`, another one of the same name counts as gone.

    Args:
        body: The object, or None if there is none.
    """
    return body is None


def complete(body: Body | None) -> bool:
    """The job has succeeded.

    Args:
        body: The object, or None if there is none.
    """
    return condition("Complete")(body)


def established(body: Body | None) -> bool:
    """The CRD is served.

    Args:
        body: The object, or None if there is none.
    """
    return condition("Established")(body) and condition("NamesAccepted")(body)


def condition(type: str, status: bool | str = True, *, current: bool = True) -> Condition:
    """The condition of this type has this status; with `current`, it is not of an older generation.

    Args:
        type: The type of the condition, such as `Ready`.
        status: The status: a boolean, or a text such as `Unknown`.
        current: Whether a condition of an older generation does not count.
    """
    expected = status if isinstance(status, str) else str(status)

    def holds(body: Body | None) -> bool:
        if body is None:
            return False
        found = _conditions(body).get(type)
        if found is None or found.get("status") != expected:
            return False
        return not current or is_current(body, found.get("observedGeneration"))

    holds.__name__ = f"condition {type}={expected}"
    return holds


def field(path: str, value: Any) -> Condition:
    """The field of the object has this value; the path is as in `spec.replicas`.

    Args:
        path: The path of the field, such as `spec.replicas`.
        value: The value.
    """
    keys = dicts.parse_field(path)

    def holds(body: Body | None) -> bool:
        if body is None:
            return False
        found = dicts.resolve(body, keys, default=None)
        return type(found) is type(value) and bool(found == value)

    holds.__name__ = f"field {path}={value!r}"
    return holds


def ready(body: Body | None) -> bool:
    """The object is ready, by the rules of its kind, for its current generation.

    Args:
        body: The object, or None if there is none.
    """
    if body is None or body.metadata.deletion_timestamp or not is_current(body, None):
        return False
    group, _, _ = str(body.get("apiVersion") or "").rpartition("/")
    rule = _RULES.get((group, str(body.get("kind"))), _ready_by_conditions)
    return rule(body)


def is_current(body: Body, observed: Any) -> bool:
    """Whether the status is not older than the current generation."""
    generation = body.metadata.get("generation")
    for seen in (observed, body.status.get("observedGeneration")):
        if isinstance(seen, int) and isinstance(generation, int) and seen < generation:
            return False
    return True


def _conditions(body: Body) -> dict[str, Mapping[str, Any]]:
    found = body.status.get("conditions") or ()
    return {str(item.get("type")): item for item in found if isinstance(item, Mapping)}


def _has(body: Body, type: str) -> bool:
    return condition(type)(body)


def _desired(body: Body) -> int:
    replicas = body.spec.get("replicas")
    return replicas if isinstance(replicas, int) else 1


def _count(body: Body, name: str) -> int:
    return body.status.get(name) or 0


# Without an observed generation, the controller has not seen the object yet.
def _is_observed(body: Body) -> bool:
    return "observedGeneration" in body.status


def _ready_deployment(body: Body) -> bool:
    counts = {_count(body, name) for name in ("updatedReplicas", "replicas", "availableReplicas")}
    return _is_observed(body) and counts == {_desired(body)}


def _ready_stateful_set(body: Body) -> bool:
    desired = _desired(body)
    if not _is_observed(body) or _count(body, "readyReplicas") != desired:
        return False
    strategy = body.spec.get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete":
        return True
    partition = (strategy.get("rollingUpdate") or {}).get("partition") or 0
    if partition:
        return _count(body, "updatedReplicas") >= desired - partition
    return bool(body.status.get("currentRevision") == body.status.get("updateRevision"))


def _ready_daemon_set(body: Body) -> bool:
    desired = _count(body, "desiredNumberScheduled")
    counts = {_count(body, name) for name in ("updatedNumberScheduled", "numberAvailable")}
    return _is_observed(body) and counts == {desired}


def _ready_replica_set(body: Body) -> bool:
    return _is_observed(body) and _count(body, "readyReplicas") == _desired(body)


def _ready_pod(body: Body) -> bool:
    return body.status.get("phase") == "Succeeded" or _has(body, "Ready")


def _ready_volume_claim(body: Body) -> bool:
    return bool(body.status.get("phase") == "Bound")


def _ready_service(body: Body) -> bool:
    if body.spec.get("type") != "LoadBalancer":
        return True
    return bool((body.status.get("loadBalancer") or {}).get("ingress"))


def _ready_namespace(body: Body) -> bool:
    return bool(body.status.get("phase") == "Active")


def _ready_budget(body: Body) -> bool:
    return _is_observed(body) and _count(body, "currentHealthy") >= _count(body, "desiredHealthy")


def _ready_by_conditions(body: Body) -> bool:
    found = _conditions(body)
    for type in ("Ready", "Available"):
        if type in found:
            return _has(body, type)
    return True


_RULES: Mapping[tuple[str, str], Callable[[Body], bool]] = {
    ("apps", "Deployment"): _ready_deployment,
    ("apps", "StatefulSet"): _ready_stateful_set,
    ("apps", "DaemonSet"): _ready_daemon_set,
    ("apps", "ReplicaSet"): _ready_replica_set,
    ("batch", "Job"): complete,
    ("", "Pod"): _ready_pod,
    ("", "PersistentVolumeClaim"): _ready_volume_claim,
    ("", "Service"): _ready_service,
    ("", "Namespace"): _ready_namespace,
    ("policy", "PodDisruptionBudget"): _ready_budget,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): established,
    ("apiregistration.k8s.io", "APIService"): condition("Available"),
}
