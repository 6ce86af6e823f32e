"""Fixtures of the tests of `kopf.apply`: a client without memory, and children."""

from collections.abc import Callable, Iterator
from typing import Any

import kopf
import pytest

AGENT = "kopf-apply-tests"
PART_OF = "applyset.kubernetes.io/part-of"


class Applying:
    """Applies children with a separate client, as a process does that is restarted now and then."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.restart()

    def restart(self) -> None:
        """Forget everything."""
        self.close()
        self._connection = kopf.connect_sync(kubeconfig=self.cluster.kubeconfig, user_agent=AGENT)
        self.api = self._connection.__enter__().in_namespace(self.cluster.namespace)

    def close(self) -> None:
        if hasattr(self, "_connection"):
            self._connection.__exit__(None, None, None)

    def __call__(self, children: Any, **options: Any) -> kopf.Applied:
        return kopf.apply_sync(children, **{"api": self.api, **options})

    def requests(self, since: int = 0) -> list[str]:
        """The requests of this client that concern objects, as verbs with paths."""
        mine = [it for it in self.cluster.requests if it.agent == AGENT][since:]
        is_discovery = ("/api", "/apis", "/api/v1", "/apis/apps/v1", "/version")
        shown = [it for it in mine if it.path not in is_discovery and "/" in it.path.removeprefix("/api")[1:]]
        return [f"{it.method} {it.path}" for it in shown if len(it.path.strip("/").split("/")) > 3]


@pytest.fixture
def apply(cluster: Any) -> Iterator[Applying]:
    applying = Applying(cluster)
    yield applying
    applying.close()


@pytest.fixture
def config_map() -> Callable[..., dict[str, Any]]:
    def build(name: str = "one", namespace: str | None = None, **data: str) -> dict[str, Any]:
        metadata = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data or {"x": "1"}}

    return build


@pytest.fixture
def deployment() -> Callable[..., dict[str, Any]]:
    def build(name: str = "web", image: str = "web:1", **spec: Any) -> dict[str, Any]:
        container = {
            "name": "web",
            "image": image,
            "env": [{"name": "EMPTY", "value": ""}, {"name": "FULL", "value": "1"}],
            "readinessProbe": {"initialDelaySeconds": 0, "tcpSocket": {"port": 80}},
        }
        labels = {"app": name}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
                **spec,
            },
        }

    return build


@pytest.fixture
def service() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "protocol": "TCP"}]},
    }


@pytest.fixture
def thing_crd(cluster: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """A CRD that is not created yet, and an object of its kind. The CRD is deleted after the test."""
    name = f"t{cluster.namespace.replace('-', '')}"[:40]
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object"}},
    }
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{name}s.apply.example.com"},
        "spec": {
            "group": "apply.example.com",
            "scope": "Namespaced",
            "names": {"plural": f"{name}s", "singular": name, "kind": name.capitalize()},
            "versions": [version],
        },
    }
    thing = {"apiVersion": "apply.example.com/v1", "kind": name.capitalize(), "metadata": {"name": "one"}}
    yield crd, thing
    cluster.api.delete("crd", f"{name}s.apply.example.com", missing_ok=True)


@pytest.fixture
def other_namespace(cluster: Any) -> str:
    """Another namespace, which is deleted after the test."""
    name = f"{cluster.namespace}-other"
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name
