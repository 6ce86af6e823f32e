"""Conventions for the keys of annotations."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from typing import Any

from kopf._objects.bodies import Body
from kopf._objects.patches import Patch
from kopf._objects.typedefs import BodyEssence

MAX_NAME_LENGTH = 63
MAX_PREFIX_LENGTH = 189  # of 253, with the slash and the longest name


class CollisionEvadingConvention:
    """Keeps apart the annotations of objects that copy them, such as replica sets from deployments."""

    def mark_key(self, key: str, *, body: Body | None) -> str:
        """Make the key different for replica sets of deployments."""
        if body is None or body.get("kind") != "ReplicaSet":
            return key
        owners = body.metadata.get("ownerReferences", [])
        owned = any(owner["kind"] == "Deployment" for owner in owners)
        return f"{key}-ofDRS" if owned else key


class StorageKeyFormingConvention(CollisionEvadingConvention):
    """Makes annotation names of handler ids: safe and short enough for Kubernetes.

    There are two ways: the old one (v1) limits the name with its prefix, the new one (v2) the name alone.
    Both are written, so that operators of different versions can replace each other.
    An empty prefix is a `ValueError`; a too long one, a warning.
    """

    def __init__(self, *args: Any, prefix: str, v1: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.prefix = prefix
        self.v1 = v1
        if not self.prefix:
            raise ValueError("Annotations storages must be prefixed.")
        if len(self.prefix) > MAX_PREFIX_LENGTH:
            warnings.warn(
                "The annotations prefix is too long. It can cause errors when PATCHing.",
                UserWarning,
                stacklevel=3,
            )

    def make_keys(self, key: str, *, body: Body | None = None) -> Collection[str]:
        """All names for the key, the preferred one first."""
        key = self.mark_key(key, body=body)
        v2 = self.make_v2_key(key)
        v1 = self.make_v1_key(key) if self.v1 else v2
        return [v2] if v1 == v2 else [v2, v1]

    def make_v1_key(self, key: str, max_length: int = MAX_NAME_LENGTH) -> str:
        """The name in the old way."""
        prefix = f"{self.prefix}/"
        safe = self.make_safe_key(key)
        suffix = self.make_suffix(safe) if len(safe) > max_length - len(prefix) else ""
        room = max_length - len(prefix) - len(suffix)
        return prefix + (safe[:room] if suffix else safe) + suffix

    def make_v2_key(self, key: str, max_length: int = MAX_NAME_LENGTH) -> str:
        """The name in the new way."""
        suffix = self.make_suffix(key) if len(key) > max_length else ""
        return f"{self.prefix}/{self.make_safe_key(key)[: max_length - len(suffix)]}{suffix}"

    @staticmethod
    def make_safe_key(key: str) -> str:
        """The key without the characters that ids usually have and annotation names cannot have."""
        return key.replace("/", ".").replace("<", "_").replace(">", "_")

    def make_suffix(self, key: str) -> str:
        """A suffix that distinguishes keys that are cut to the same prefix."""
        # Not needed by those whose keys are made by the engine.
        import base64
        import hashlib

        digest = hashlib.blake2b(key.encode("utf-8"), digest_size=4).digest()
        return "-" + base64.b64encode(digest, altchars=b"-.").decode("ascii").rstrip("=-.")


class StorageKeyMarkingConvention:
    """Recognises the annotations of all operators of this framework, not only of this one.

    Operators with other prefixes leave a marker: their annotations are not changes by the author.
    """

    _KNOWN_MARKERS = frozenset({"kopf-managed"})
    _KNOWN_PREFIXES = frozenset({"kopf.zalando.org"})

    def _detect_marked_prefixes(self, keys: Collection[str]) -> Collection[str]:
        prefixes: set[str] = set()
        for prefix, _, name in (key.partition("/") for key in keys if "/" in key):
            known = prefix in self._KNOWN_PREFIXES or prefix.endswith(
                tuple(f".{known}" for known in self._KNOWN_PREFIXES)
            )
            if known or name in self._KNOWN_MARKERS:
                prefixes.add(prefix)
        return frozenset(prefixes)

    def _store_marker(self, prefix: str, patch: Patch, body: Body) -> None:
        if prefix.startswith("kopf."):
            return
        for name in self._KNOWN_MARKERS:
            key = f"{prefix}/{name}"
            if key not in body.metadata.annotations and key not in patch.metadata.annotations:
                patch.metadata.annotations[key] = "yes"


class StorageStanzaCleaner:
    """Removes traces of what was removed."""

    def __repr__(self) -> str:
        shown = ("prefix", "key", "_name", "_field", "storages")
        values = {name: vars(self)[name] for name in shown if name in vars(self)}
        texts = [
            f"{name.lstrip('_')}={'.'.join(value) if name == '_field' else repr(value)}"
            for name, value in values.items()
        ]
        return f"{type(self).__name__}({', '.join(texts)})"

    @staticmethod
    def remove_annotations(essence: BodyEssence, keys_to_remove: Collection[str]) -> None:
        """Remove these annotations from the essence, in place."""
        metadata: Any = essence.get("metadata", {})
        annotations = metadata.get("annotations", {})
        for key in [key for key in annotations or () if key in keys_to_remove]:
            del annotations[key]

    @staticmethod
    def remove_empty_stanzas(essence: BodyEssence) -> None:
        """Remove the stanzas that might have become empty from the essence, in place."""
        raw: Any = essence
        metadata = raw.get("metadata")
        if isinstance(metadata, Mapping):
            for key in ("annotations", "labels"):
                if key in metadata and not metadata[key]:
                    del raw["metadata"][key]
        for key in ("metadata", "status"):
            if key in raw and not raw[key]:
                del raw[key]
