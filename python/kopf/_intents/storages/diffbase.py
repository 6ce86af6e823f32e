"""Storages of the last handled essence.

An essence is an object without its status, system metadata, and Kopf's annotations.
"""

from __future__ import annotations

import copy
import json
from abc import ABCMeta, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from typing import Any, cast

from kopf._intents.storages.conventions import (
    StorageKeyFormingConvention,
    StorageKeyMarkingConvention,
    StorageStanzaCleaner,
)
from kopf._objects import dicts
from kopf._objects.bodies import Body
from kopf._objects.patches import Patch
from kopf._objects.typedefs import BodyEssence

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
BUILT_METADATA = ("labels", "annotations")
SYSTEM_STANZAS = ("apiVersion", "kind", "metadata", "status")
CONDENSED, DIGEST = "kopf.dev/condensed", "kopf.dev/digest"
"""The keys of an essence with digests instead of large values, and of such a digest.

The engine stores those that do not fit into annotations; see `kopf-core/src/persistence/diffbase/compact.rs`.
"""


class DiffBaseStorage(StorageKeyMarkingConvention, StorageStanzaCleaner, metaclass=ABCMeta):
    """Keeps the last handled essence with the object. To be inherited from; all methods are synchronous.

    Common parameters:
        body: The object.
        patch: The patch for the object, which is written after the handlers.
        essence: The essence: the object without system fields and without status.
        ignored_fields: The fields that are not a part of the essence.
        extra_fields: Fields that are a part of the essence, in addition to the usual ones.
        storages: The storages, in their order.
        prefix: The prefix of annotations, before the slash; an empty one is a `ValueError`.
        key: The name of the annotation, after the slash.
        v1: Whether to write the annotations of earlier versions of Kopf, too.
        name: The name for `{name}` in the field.
        field: The field, such as `status.{name}`: a path, or a tuple of keys.
    """

    def __init__(self, ignored_fields: Iterable[dicts.FieldSpec] | None = None) -> None:
        super().__init__()
        # Unparsed: operators read and change the fields as they were given.
        self.ignored_fields = list(ignored_fields or ())
        for field in self.ignored_fields:
            dicts.parse_field(field)  # raises for wrong types

    def build(self, *, body: Body, extra_fields: Iterable[dicts.FieldSpec] | None = None) -> BodyEssence:
        """Make the essence of the object, with the extra fields that are of interest for handlers."""
        essence: dict[str, Any] = {
            key: copy.deepcopy(value) for key, value in body.items() if key not in SYSTEM_STANZAS
        }
        kept: list[dicts.FieldSpec] = [("metadata", key) for key in BUILT_METADATA]
        dicts.cherrypick(src=body, dst=essence, fields=kept, picker=copy.deepcopy)

        annotations = essence.get("metadata", {}).get("annotations") or {}
        prefixes = self._detect_marked_prefixes(list(annotations))
        managed = {key for key in annotations if "/" in key and key.split("/", 1)[0] in prefixes}
        self.remove_annotations(cast(BodyEssence, essence), managed | {LAST_APPLIED})

        extra = list(extra_fields) if extra_fields is not None else []
        dicts.cherrypick(src=body, dst=essence, fields=extra, picker=copy.deepcopy)
        self.remove_empty_stanzas(cast(BodyEssence, essence))
        self._remove_ignored(essence)
        return cast(BodyEssence, essence)

    def _remove_ignored(self, essence: dict[str, Any]) -> None:
        for field in self.ignored_fields:
            try:
                dicts.remove(essence, field)
            except TypeError:
                continue  # there is no such field, since there is something else on the way to it

    @abstractmethod
    def fetch(self, *, body: Body) -> BodyEssence | None:
        """Get the last handled essence from the object, or None if it was never handled."""
        raise NotImplementedError

    @abstractmethod
    def store(self, *, body: Body, patch: Patch, essence: BodyEssence) -> None:
        """Put the essence to the patch."""
        raise NotImplementedError


class AnnotationsDiffBaseStorage(StorageKeyFormingConvention, DiffBaseStorage):
    """The default storage: an annotation with compact JSON."""

    def __init__(
        self,
        *,
        prefix: str = "kopf.zalando.org",
        key: str = "last-handled-configuration",
        ignored_fields: Iterable[dicts.FieldSpec] | None = None,
        v1: bool = True,
    ) -> None:
        super().__init__(prefix=prefix, v1=v1, ignored_fields=ignored_fields)
        self.key = key

    def build(self, *, body: Body, extra_fields: Iterable[dicts.FieldSpec] | None = None) -> BodyEssence:
        """Make the essence without the annotations of this storage."""
        essence = super().build(body=body, extra_fields=extra_fields)
        self.remove_annotations(essence, set(self.make_keys(self.key, body=body)))
        self.remove_empty_stanzas(essence)
        return essence

    def fetch(self, *, body: Body) -> BodyEssence | None:
        """Get the essence from the first annotation found; malformed JSON raises `ValueError`.

        If the essence was too large for an annotation, the large values that have changed since are missing.
        """
        for full_key in self.make_keys(self.key, body=body):
            encoded = body.metadata.annotations.get(full_key)
            essence = json.loads(encoded) if encoded is not None else None
            if essence is not None:
                return self._restore(essence, body)
        return None

    def _restore(self, essence: Any, body: Body) -> BodyEssence:
        """Replace the digests in a condensed essence by the values of the object that have not changed."""
        if not isinstance(essence, dict) or essence.keys() != {CONDENSED}:
            return cast(BodyEssence, essence)
        from kopf._objects import rules  # others need no engine

        # As the engine has built it; a class that inherits from this one may leave out other fields.
        extra_fields = list(_extra_fields_in(essence[CONDENSED]))
        present = AnnotationsDiffBaseStorage.build(self, body=body, extra_fields=extra_fields)
        return cast(BodyEssence, rules.restore_essence(essence, present))

    def store(self, *, body: Body, patch: Patch, essence: BodyEssence) -> None:
        """Put the essence to all its annotations."""
        encoded = json.dumps(essence, separators=(",", ":")) + "\n"
        for full_key in self.make_keys(self.key, body=body):
            patch.metadata.annotations[full_key] = encoded
        self._store_marker(prefix=self.prefix, patch=patch, body=body)


def _extra_fields_in(tree: Any) -> Iterator[dicts.FieldPath]:
    """Find the fields of a condensed essence that only extra fields can have added to it."""
    for path in _leaves(tree, ()):
        if path[:1] == ("metadata",):
            is_extra = len(path) > 1 and path[1] not in BUILT_METADATA
        else:
            is_extra = path[:1] != () and path[0] in SYSTEM_STANZAS
        if is_extra:
            yield path


def _leaves(tree: Any, path: tuple[str, ...]) -> Iterator[dicts.FieldPath]:
    if isinstance(tree, dict) and DIGEST not in tree:
        for key, value in tree.items():
            yield from _leaves(value, (*path, key))
    else:
        yield path


class StatusDiffBaseStorage(DiffBaseStorage):
    """Keeps the essence in a field of the status, as compact JSON. The field can contain `{name}`."""

    def __init__(
        self,
        *,
        name: str = "kopf",
        field: dicts.FieldSpec = "status.{name}.last-handled-configuration",
        ignored_fields: Iterable[dicts.FieldSpec] | None = None,
    ) -> None:
        super().__init__(ignored_fields=ignored_fields)
        self._name = name
        self._field = self._format(field)

    def _format(self, field: dicts.FieldSpec) -> dicts.FieldPath:
        return dicts.parse_field(field.format(name=self._name) if isinstance(field, str) else field)

    @property
    def field(self) -> dicts.FieldSpec:
        """Where the essence is."""
        return self._field

    @field.setter
    def field(self, field: dicts.FieldSpec) -> None:
        self._field = self._format(field)

    def build(self, *, body: Body, extra_fields: Iterable[dicts.FieldSpec] | None = None) -> BodyEssence:
        """Make the essence without the field of this storage."""
        essence = super().build(body=body, extra_fields=extra_fields)
        dicts.remove(cast("dict[str, Any]", essence), self._field)
        self.remove_empty_stanzas(essence)
        return essence

    def fetch(self, *, body: Body) -> BodyEssence | None:
        """Get the essence from the status; malformed JSON raises `ValueError`."""
        encoded: str | None = dicts.resolve(body, self._field, default=None)
        return cast(BodyEssence, json.loads(encoded)) if encoded is not None else None

    def store(self, *, body: Body, patch: Patch, essence: BodyEssence) -> None:
        """Put the essence to the status."""
        dicts.ensure(patch, self._field, json.dumps(essence, separators=(",", ":")))


class MultiDiffBaseStorage(DiffBaseStorage):
    """Writes to several storages, and reads from the first one that has the essence."""

    def __init__(self, storages: Collection[DiffBaseStorage]) -> None:
        super().__init__()
        self.storages = storages

    def build(self, *, body: Body, extra_fields: Iterable[dicts.FieldSpec] | None = None) -> BodyEssence:
        """Make the essence without anything of all storages."""
        essence = super().build(body=body, extra_fields=extra_fields)
        for storage in self.storages:
            # The extra fields are taken from what is already an essence: dropped fields do not come back.
            essence = storage.build(body=Body(essence), extra_fields=extra_fields)
        return essence

    def fetch(self, *, body: Body) -> BodyEssence | None:
        """Get the essence from the first storage that has it."""
        for storage in self.storages:
            content = storage.fetch(body=body)
            if content is not None:
                return content
        return None

    def store(self, *, body: Body, patch: Patch, essence: BodyEssence) -> None:
        """Put the essence to all storages."""
        for storage in self.storages:
            storage.store(body=body, patch=patch, essence=essence)
