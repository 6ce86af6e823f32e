"""Settings of caches; imported when they are used for the first time."""

from __future__ import annotations

from dataclasses import dataclass, field

from kopf._objects.dicts import FieldSpec


def _default_drop() -> list[FieldSpec]:
    last_applied = ("metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration")
    return ["metadata.managedFields", last_applied]


@dataclass(slots=True)
class CachingSettings:
    """Caches: their fields and their memory. Read once, after startup handlers."""

    drop: list[FieldSpec] = field(default_factory=_default_drop)
    """The fields that caches do not keep, unless a cache has its own `drop`; by default,
    `metadata.managedFields` and kubectl's annotation with the last applied object."""

    rest: float = 60
    """The seconds after which an object that is not read is compressed."""

    warn_above: int = 256 * 2**20
    """The memory size of all caches in bytes from which on there is a warning, and at each doubling."""
