"""Manifests for a cluster, from texts, files, folders, and dicts."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import IO, Any

import yaml

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML was built without libyaml, which is ten times faster
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class ManifestLoader(_Loader):
    """Reads dates as texts, as kubectl does: JSON has no dates."""


ManifestLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


Source = str | os.PathLike[str] | Mapping[str, Any] | Iterable[Mapping[str, Any]]


def read(source: Source) -> list[Mapping[str, Any]]:
    """The objects of the source. A text without a colon is the name of a file or a folder."""
    if isinstance(source, Mapping):
        return [source]
    if isinstance(source, os.PathLike) or (
        isinstance(source, str) and "\n" not in source and ":" not in source
    ):
        path = pathlib.Path(source)
        if path.is_dir():
            files = [item for item in sorted(path.iterdir()) if item.suffix in (".yaml", ".yml", ".json")]
            return [body for file in files for body in read(file)]
        with path.open(encoding="utf-8") as file:  # not only its text: errors name the file
            return _read_text(file)
    if isinstance(source, str):
        return _read_text(source)
    return [body for body in source]


def _read_text(text: str | IO[str]) -> list[Mapping[str, Any]]:
    bodies: list[Mapping[str, Any]] = []
    for body in yaml.load_all(text, ManifestLoader):
        if not body:
            continue
        if not isinstance(body, Mapping):
            raise TypeError(f"{getattr(text, 'name', 'The text')} is not a manifest: {type(body).__name__}.")
        bodies += body["items"] if str(body.get("kind")).endswith("List") and "items" in body else [body]
    for body in bodies:
        if not isinstance(body, Mapping):
            raise TypeError(f"{getattr(text, 'name', 'The text')} is not a manifest: {type(body).__name__}.")
    return bodies


def metadata_of(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The metadata of an object; empty if there are none, which the server rejects."""
    metadata = body.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


def apply_order(body: Mapping[str, Any]) -> int:
    """Sort key: CRDs and namespaces are applied before the objects that need them."""
    return {"CustomResourceDefinition": 0, "Namespace": 1}.get(str(body.get("kind")), 2)
