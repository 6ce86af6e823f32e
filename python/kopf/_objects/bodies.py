"""Body of an object, with views of its metadata, spec, and status.

The source of a body is a dict, or a mapping that converts its top-level values on access. The constructors do
not call their parents, and the initial values are those of the classes: handlers get new views in each call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kopf._objects.typedefs import Annotations, Labels
from kopf._objects.views import MappingView, ReplaceableMappingView

_LABELS = ("metadata", "labels")
_ANNOTATIONS = ("metadata", "annotations")
_new: Any = object.__new__


class Spec(MappingView[str, Any]):
    """The `spec` of an object; empty if there is none."""

    _path = ("spec",)

    def __init__(self, src: Mapping[str, Any], /) -> None:
        self._src = src


class Status(MappingView[str, Any]):
    """The `status` of an object; empty if there is none."""

    _path = ("status",)

    def __init__(self, src: Mapping[str, Any], /) -> None:
        self._src = src


class Meta(MappingView[str, Any]):
    """The `metadata` of an object, with its most used fields as properties. Timestamps are strings."""

    _path = ("metadata",)
    _labels: Labels | None = None
    _annotations: Annotations | None = None

    def __init__(self, src: Mapping[str, Any], /) -> None:
        self._src = src

    @property
    def labels(self) -> Labels:
        """A live view of the labels; empty if there are none."""
        if self._labels is None:
            self._labels = MappingView(self._src, _LABELS)
        return self._labels

    @property
    def annotations(self) -> Annotations:
        """A live view of the annotations; empty if there are none."""
        if self._annotations is None:
            self._annotations = MappingView(self._src, _ANNOTATIONS)
        return self._annotations

    @property
    def uid(self) -> str | None:
        """The unique id, or None if not known yet."""
        return self.get("uid")

    @property
    def name(self) -> str | None:
        """The name, or None if not known yet."""
        return self.get("name")

    @property
    def namespace(self) -> str | None:
        """The namespace, or None for cluster-scoped objects."""
        return self.get("namespace")

    @property
    def creation_timestamp(self) -> str | None:
        """When the object was created (ISO-8601)."""
        return self.get("creationTimestamp")

    @property
    def deletion_timestamp(self) -> str | None:
        """When the deletion was requested (ISO-8601), or None."""
        return self.get("deletionTimestamp")


class Body(ReplaceableMappingView[str, Any]):
    """A whole object: a read-only mapping, with views of its stanzas, which follow changes of the source.

    Args:
        src: The object as a mapping; it is not copied.
    """

    _path = ()
    _meta: Meta | None = None
    _spec: Spec | None = None
    _status: Status | None = None

    def __init__(self, src: Mapping[str, Any], /) -> None:
        self._src = src

    # The path is always empty here, and these accesses are the hottest ones: skip the generic descent.
    def __getitem__(self, item: str) -> Any:
        return self._src[item]

    def _stanza(self) -> Any:
        return self._src

    # The source might be a native object, which cannot leave the process: its content is copied.
    def __getstate__(self) -> dict[str, Any]:
        src = self._src
        return {**self.__dict__, "_src": src if isinstance(src, (dict, MappingView)) else dict(src)}

    @property
    def metadata(self) -> Meta:
        """The metadata; the same view at each access."""
        if self._meta is None:
            self._meta = Meta(self)
        return self._meta

    @property
    def meta(self) -> Meta:
        """The metadata; the same view at each access, the same as `metadata`."""
        return self.metadata

    @property
    def spec(self) -> Spec:
        """The spec; the same view at each access."""
        if self._spec is None:
            self._spec = Spec(self)
        return self._spec

    @property
    def status(self) -> Status:
        """The status; the same view at each access."""
        if self._status is None:
            self._status = Status(self)
        return self._status


def argument_views(body: Body, /) -> tuple[Meta, Spec, Status, Labels, Annotations]:
    """The views of a body that handlers get, the same as its properties; most calls need new ones.

    They are made without calls of properties and of constructors: these are most of what a call would take.
    """
    meta, spec, status = body._meta, body._spec, body._status
    if meta is None:
        meta = body._meta = _new(Meta)
        meta._src = body
    if spec is None:
        spec = body._spec = _new(Spec)
        spec._src = body
    if status is None:
        status = body._status = _new(Status)
        status._src = body
    labels, annotations = meta._labels, meta._annotations
    if labels is None:
        labels = meta._labels = _new(MappingView)
        labels._src, labels._path = body, _LABELS
    if annotations is None:
        annotations = meta._annotations = _new(MappingView)
        annotations._src, annotations._path = body, _ANNOTATIONS
    return meta, spec, status, labels, annotations


def source_of(body: Body) -> Mapping[str, Any]:
    """The mapping with the values of the body."""
    return body._src


def replace_source(body: Body, source: Mapping[str, Any]) -> None:
    """Replace the mapping with the values of the body and of all its views."""
    body._replace_with(source)


def release_views(body: Body) -> None:
    """Drop the views of the body: they refer back to the body, and so keep it in memory."""
    body._meta = body._spec = body._status = None
