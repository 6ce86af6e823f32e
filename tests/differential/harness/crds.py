"""The CRDs of the scenarios, in `crds/`; their API group is filled in, except for that of Kopf's peering."""

from __future__ import annotations

import pathlib
from collections.abc import Collection, Iterator

import yaml

from . import process
from .cluster import BUILTIN_KINDS, ApiError, Cluster, Object

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "crds"
SHARED_GROUP = "diff.example.dev"
SERVED_TIMEOUT = 60


def load(group: str, plurals: Collection[str] | None = None) -> Iterator[Object]:
    """The CRDs with these plural names, or all of them."""
    for file in sorted(FOLDER.glob("*.yaml")):
        for crd in yaml.safe_load_all(file.read_text().replace("${GROUP}", group)):
            if plurals is None or crd["spec"]["names"]["plural"] in plurals:
                yield crd


def install(cluster: Cluster, group: str, plurals: Collection[str] | None = None) -> None:
    """Create the CRDs that do not exist, and wait until the API server serves their resources."""
    path = BUILTIN_KINDS["customresourcedefinitions"].path()
    crds = list(load(group, plurals))
    for crd in crds:
        try:
            cluster.request("POST", path, crd)
        except ApiError as error:
            if error.status != 409:
                raise
    if not process.poll(lambda: all(_is_served(cluster, crd) for crd in crds), SERVED_TIMEOUT, 0.2):
        names = ", ".join(crd["metadata"]["name"] for crd in crds)
        raise TimeoutError(f"the API server does not serve {names} after {SERVED_TIMEOUT} s")


def _is_served(cluster: Cluster, crd: Object) -> bool:
    """Whether the API server lists the resource and its objects: later than the condition of the CRD."""
    path = BUILTIN_KINDS["customresourcedefinitions"].path(name=crd["metadata"]["name"])
    conditions = (cluster.get(path).get("status") or {}).get("conditions") or []
    if {"Established": "True"}.items() - {item["type"]: item["status"] for item in conditions}.items():
        return False
    spec = crd["spec"]
    for version in spec["versions"]:
        root = f"/apis/{spec['group']}/{version['name']}"
        resources = (cluster.find(root) or {}).get("resources", [])
        plural = spec["names"]["plural"]
        if plural not in {resource["name"] for resource in resources}:
            return False
        if cluster.find(f"{root}/{plural}") is None:
            return False
    return True
