"""Checks of `kopf doctor`: CRDs with their schemas, and the state that operators have stored on objects."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from kopf._cli.cluster_session import Session
from kopf._cli.findings import Finding
from kopf._cli.inspected_kinds import InspectedKind, list_pages
from kopf._cli.permissions import Resolved
from kopf._intents.serialization import serialize_progress_storage
from kopf._intents.settings import OperatorSettings
from kopf._objects.resources import Resource
from kopf._runtime.banner import count_noun

CRDS = "customresourcedefinitions.apiextensions.k8s.io"
DEFAULT_FINALIZER = OperatorSettings().persistence.finalizer
LARGE = 200 * 1024
"""Bytes of annotations from which an object is large: the limit of Kubernetes is 256 KiB."""


def written_resources(resolved: Resolved) -> list[Resource]:
    """The resources whose objects the operator patches."""
    written = [selected for kind, selected in resolved.items() if kind.is_written]
    return list(dict.fromkeys(resource for selected in written for resource in selected))


def check_crds(session: Session, resolved: Resolved) -> Iterator[Finding]:
    """Check the CRDs of the resources that the operator writes."""
    storage = serialize_progress_storage(session.settings.persistence.progress_storage)
    needs_status = storage["type"] == "Status"
    for resource in written_resources(resolved):
        crd = session.api.find(CRDS, f"{resource.plural}.{resource.group}") if resource.group else None
        if crd is None:
            continue  # it is built in, or served by an aggregated API server
        conditions = {item["type"]: item["status"] for item in crd["status"].get("conditions") or ()}
        if conditions.get("Established") != "True":
            yield Finding("schema", "fail", f"{resource.plural}: the CRD is not established")
        version = next((one for one in crd["spec"]["versions"] if one["name"] == resource.version), None)
        if version is None or not is_status_pruned(version):
            continue
        if needs_status:
            text = "status is pruned, so the progress of handlers is lost, and they are called again"
            yield Finding("schema", "fail", f"{resource.plural}: {text}")
        else:
            text = "status is pruned: results of handlers would be lost"
            yield Finding("schema", "info", f"{resource.plural}: {text}")


def is_status_pruned(version: Mapping[str, Any]) -> bool:
    """Whether the schema of a version neither declares fields of the status nor preserves unknown ones."""
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    status = (schema.get("properties") or {}).get("status")
    preserves = "x-kubernetes-preserve-unknown-fields"
    if status is None:
        return not schema.get(preserves)
    return not (status.get(preserves) or status.get("properties") or status.get("additionalProperties"))


def check_objects(session: Session, resolved: Resolved, namespaces: Collection[str]) -> Iterator[Finding]:
    """Check what is stored on the objects that the operator writes."""
    own = session.settings.persistence.finalizer
    count = 0
    for resource in written_resources(resolved):
        large, older = 0, 0
        for page in list_pages(session, InspectedKind(resource, (own,)), namespaces):
            count += len(page)
            large += sum(_size(body.metadata.annotations) > LARGE for body in page)
            older += sum(_has_older_finalizer(body.get("metadata", {}), own) for body in page)
        if large:
            text = f"{resource.plural}: {_count(large)} more than {LARGE // 1024} KiB of annotations"
            yield Finding("state", "warn", text)
        if older:
            text = f"{resource.plural}: {_count(older)} the finalizer {DEFAULT_FINALIZER} of another operator"
            hint = f"kopf release-finalizers -k {resource.plural} --finalizer {DEFAULT_FINALIZER}"
            yield Finding("state", "warn", f"{text}, or of earlier settings of this one", hint)
    yield Finding("state", "info", count_noun(count, "object"))


def _count(number: int) -> str:
    return "1 object has" if number == 1 else f"{number} objects have"


def _size(annotations: Mapping[str, str]) -> int:
    return sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())


def _has_older_finalizer(metadata: Mapping[str, Any], own: str) -> bool:
    finalizers: Sequence[str] = metadata.get("finalizers") or ()
    return own != DEFAULT_FINALIZER and DEFAULT_FINALIZER in finalizers
