"""Storages of handler progress."""

from __future__ import annotations

import copy
import json
from abc import ABCMeta, abstractmethod
from collections.abc import Collection
from typing import Any, cast

from kopf._intents.storages.conventions import (
    StorageKeyFormingConvention,
    StorageKeyMarkingConvention,
    StorageStanzaCleaner,
)
from kopf._objects import dicts
from kopf._objects.bodies import Body
from kopf._objects.patches import Patch
from kopf._objects.typedefs import BodyEssence, HandlerId, ProgressRecord

_ABSENT = object()


class ProgressStorage(StorageStanzaCleaner, metaclass=ABCMeta):
    """Keeps one record per handler with the object. To be inherited from; all methods are synchronous.

    Common parameters:
        key: The id of the handler.
        record: The record of the handler.
        body: The object.
        patch: The patch for the object, which is written after the handlers.
        value: The dummy value; None removes it.
        essence: The essence: the object without system fields and without status.
        storages: The storages, in their order.
        prefix: The prefix of annotations, before the slash; an empty one is a `ValueError`.
        verbose: Whether fields without values are written, too.
        touch_key: The name of the annotation with the dummy value, after the slash.
        v1: Whether to write the annotations of earlier versions of Kopf, too.
        name: The name for `{name}` in the fields.
        field: The field of the records: a path, or a tuple of keys.
        touch_field: The field of the dummy value: a path, or a tuple of keys.
    """

    @abstractmethod
    def fetch(self, *, key: HandlerId, body: Body) -> ProgressRecord | None:
        """Get the record from the object, or None if there is none."""
        raise NotImplementedError

    @abstractmethod
    def store(self, *, key: HandlerId, record: ProgressRecord, body: Body, patch: Patch) -> None:
        """Put the record to the patch."""
        raise NotImplementedError

    @abstractmethod
    def purge(self, *, key: HandlerId, body: Body, patch: Patch) -> None:
        """Put the removal of the record to the patch, if there is anything to remove."""
        raise NotImplementedError

    @abstractmethod
    def touch(self, *, body: Body, patch: Patch, value: str | None) -> None:
        """Put a dummy value into the patch, in order to get an event of the object; None removes it."""
        raise NotImplementedError

    @abstractmethod
    def clear(self, *, essence: BodyEssence) -> BodyEssence:
        """Return a copy of the essence without the fields of this storage."""
        return copy.deepcopy(essence)

    def flush(self) -> None:
        """Write down what is kept aside of the object, if anything is."""


class AnnotationsProgressStorage(
    StorageKeyFormingConvention,
    StorageKeyMarkingConvention,
    ProgressStorage,
):
    """Keeps each record in a separate annotation, as compact JSON; without None fields, unless verbose."""

    def __init__(
        self,
        *,
        prefix: str = "kopf.zalando.org",
        verbose: bool = False,
        touch_key: str = "touch-dummy",
        v1: bool = True,
    ) -> None:
        super().__init__(prefix=prefix, v1=v1)
        self.verbose = verbose
        self.touch_key = touch_key

    def fetch(self, *, key: HandlerId, body: Body) -> ProgressRecord | None:
        """Get the record from the first annotation found; malformed JSON raises `ValueError`."""
        for full_key in self.make_keys(key, body=body):
            encoded = body.metadata.annotations.get(full_key)
            if encoded is not None:
                return cast(ProgressRecord, json.loads(encoded))
        return None

    def store(self, *, key: HandlerId, record: ProgressRecord, body: Body, patch: Patch) -> None:
        """Put the record to all its annotations."""
        fields = {name: value for name, value in record.items() if value is not None or self.verbose}
        encoded = json.dumps(fields, separators=(",", ":"))
        for full_key in self.make_keys(key, body=body):
            patch.metadata.annotations[full_key] = encoded
        self._store_marker(prefix=self.prefix, patch=patch, body=body)

    def purge(self, *, key: HandlerId, body: Body, patch: Patch) -> None:
        """Remove the record's annotations; those that are only in the patch are taken out of it."""
        for full_key in self.make_keys(key, body=body):
            if full_key in body.metadata.annotations:
                patch.metadata.annotations[full_key] = None
            else:
                dicts.remove(patch, ("metadata", "annotations", full_key))

    def touch(self, *, body: Body, patch: Patch, value: str | None) -> None:
        """Change the dummy annotation."""
        for full_key in self.make_keys(self.touch_key, body=body):
            if body.metadata.annotations.get(full_key) != value:
                patch.metadata.annotations[full_key] = value
                self._store_marker(prefix=self.prefix, patch=patch, body=body)

    def clear(self, *, essence: BodyEssence) -> BodyEssence:
        """Drop all annotations with the prefix of the storage."""
        essence = super().clear(essence=essence)
        metadata: Any = essence.get("metadata", {})
        annotations = metadata.get("annotations", {})
        keys = {key for key in annotations or () if key.startswith(f"{self.prefix}/")}
        self.remove_annotations(essence, keys)
        self.remove_empty_stanzas(essence)
        return essence


class StatusProgressStorage(ProgressStorage):
    """Keeps all records in one field of the status, by the ids of handlers. It can contain `{name}`."""

    def __init__(
        self,
        *,
        name: str = "kopf",
        field: dicts.FieldSpec = "status.{name}.progress",
        touch_field: dicts.FieldSpec = "status.{name}.dummy",
    ) -> None:
        super().__init__()
        self._name = name
        self._field = self._format(field)
        self._touch_field = self._format(touch_field)

    def _format(self, field: dicts.FieldSpec) -> dicts.FieldPath:
        return dicts.parse_field(field.format(name=self._name) if isinstance(field, str) else field)

    @property
    def field(self) -> dicts.FieldSpec:
        """Where the records are."""
        return self._field

    @field.setter
    def field(self, field: dicts.FieldSpec) -> None:
        self._field = self._format(field)

    @property
    def touch_field(self) -> dicts.FieldSpec:
        """Where the dummy value is."""
        return self._touch_field

    @touch_field.setter
    def touch_field(self, field: dicts.FieldSpec) -> None:
        self._touch_field = self._format(field)

    def fetch(self, *, key: HandlerId, body: Body) -> ProgressRecord | None:
        """Get the record from the status."""
        record: ProgressRecord | None = dicts.resolve(body, (*self._field, key), default=None)
        return record

    def store(self, *, key: HandlerId, record: ProgressRecord, body: Body, patch: Patch) -> None:
        """Put the record to the status, with its None fields."""
        dicts.ensure(patch, (*self._field, key), dict(record))

    def purge(self, *, key: HandlerId, body: Body, patch: Patch) -> None:
        """Remove the record from the status; if it is only in the patch, it is taken out of it."""
        path = (*self._field, key)
        if dicts.resolve(body, path, default=_ABSENT) is not _ABSENT:
            dicts.ensure(patch, path, None)
        elif dicts.resolve(patch, path, default=_ABSENT) is not _ABSENT:
            dicts.remove(patch, path)

    def touch(self, *, body: Body, patch: Patch, value: str | None) -> None:
        """Change the dummy field."""
        if dicts.resolve(body, self._touch_field, default=None) != value:
            dicts.ensure(patch, self._touch_field, value)

    def clear(self, *, essence: BodyEssence) -> BodyEssence:
        """Drop the field with the records."""
        essence = super().clear(essence=essence)
        dicts.remove(cast("dict[str, Any]", essence), self._field)
        self.remove_empty_stanzas(essence)
        return essence


class ReadOnlyStatusProgressStorage(StatusProgressStorage):
    """Reads and removes the records that were left in the status by older operators; never writes them."""

    def store(self, *, key: HandlerId, record: ProgressRecord, body: Body, patch: Patch) -> None:
        """Do nothing."""

    def touch(self, *, body: Body, patch: Patch, value: str | None) -> None:
        """Do nothing."""


class MultiProgressStorage(ProgressStorage):
    """Writes to several storages, and reads from the first one that has the record."""

    def __init__(self, storages: Collection[ProgressStorage]) -> None:
        super().__init__()
        self.storages = storages

    def fetch(self, *, key: HandlerId, body: Body) -> ProgressRecord | None:
        """Get the record from the first storage that has it."""
        for storage in self.storages:
            content = storage.fetch(key=key, body=body)
            if content is not None:
                return content
        return None

    def store(self, *, key: HandlerId, record: ProgressRecord, body: Body, patch: Patch) -> None:
        """Put the record to all storages."""
        for storage in self.storages:
            storage.store(key=key, record=record, body=body, patch=patch)

    def purge(self, *, key: HandlerId, body: Body, patch: Patch) -> None:
        """Remove the record from all storages."""
        for storage in self.storages:
            storage.purge(key=key, body=body, patch=patch)

    def touch(self, *, body: Body, patch: Patch, value: str | None) -> None:
        """Change the dummy values of all storages."""
        for storage in self.storages:
            storage.touch(body=body, patch=patch, value=value)

    def clear(self, *, essence: BodyEssence) -> BodyEssence:
        """Drop what is kept by all storages."""
        for storage in self.storages:
            essence = storage.clear(essence=essence)
        return essence


class SmartProgressStorage(MultiProgressStorage):
    """The default storage: annotations, and also the status if older operators have used it."""

    def __init__(
        self,
        *,
        name: str = "kopf",
        field: dicts.FieldSpec = "status.{name}.progress",
        touch_key: str = "touch-dummy",
        touch_field: dicts.FieldSpec = "status.{name}.dummy",
        prefix: str = "kopf.zalando.org",
        v1: bool = True,
        verbose: bool = False,
    ) -> None:
        annotations = AnnotationsProgressStorage(prefix=prefix, v1=v1, verbose=verbose, touch_key=touch_key)
        status = ReadOnlyStatusProgressStorage(name=name, field=field, touch_field=touch_field)
        super().__init__([annotations, status])
