"""Types of the data of the Kubernetes API, and of the records that Kopf persists."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal, NewType, TypedDict

HandlerId = NewType("HandlerId", str)
"""The id of a handler, as it is seen in annotations, in the status, and in the logs."""

Labels = Mapping[str, str]
"""The labels of an object."""

Annotations = Mapping[str, str]
"""The annotations of an object."""

RawEventType = Literal[None, "ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
"""The type of a watch event; None is for the objects found by the initial listing."""


class RawMeta(TypedDict, total=False):
    """The metadata of an object."""

    uid: str
    name: str
    namespace: str
    labels: Labels
    annotations: Annotations
    finalizers: list[str]
    resourceVersion: str
    deletionTimestamp: str
    creationTimestamp: str
    selfLink: str


class RawBody(TypedDict, total=False):
    """An object as it is kept in Kubernetes."""

    apiVersion: str
    kind: str
    metadata: RawMeta
    spec: dict[str, Any]
    status: dict[str, Any]


class RawEvent(TypedDict, total=True):
    """One event of a watch stream with the new state of an object."""

    type: RawEventType
    object: RawBody


class MetaEssence(TypedDict, total=False):
    """The parts of the metadata that belong to the essence of an object."""

    labels: Labels
    annotations: Annotations


class BodyEssence(TypedDict, total=False):
    """The author's intent: an object without its status, system metadata, and traces of operators."""

    metadata: MetaEssence
    spec: dict[str, Any]
    status: dict[str, Any]


class ProgressRecord(TypedDict, total=False):
    """The persisted progress of one handler; moments are ISO-8601 strings in UTC."""

    started: str | None
    stopped: str | None
    delayed: str | None
    purpose: str | None
    retries: int | None
    success: bool | None
    failure: bool | None
    message: str | None
    subrefs: Collection[HandlerId] | None
