"""Reconcilers, caches and children survive faults of the API server: no trigger is lost, and each child is as
desired at the end.

Each case injects one kind of fault while objects come, change and go, and while another client spoils
children.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import kopf
import pytest
from kopf.testing import Cluster, Operator

from tests.faults.crds import ANYTHING, make_crd

GROUP = "children.example.com"
KIND = "barrels"
CRD = make_crd(GROUP, "Barrel", ANYTHING, status=True)
COUNT = 6
ROUNDS = 2
REQUESTS = 8
"""A fault lasts until the operator has sent so many requests, or for two seconds."""
CONVERGE = 60.0

pytestmark = [pytest.mark.kopf_embedded_only, pytest.mark.timeout(300)]


class Seen:
    """The values that the reconciler has handled, and its overlaps."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.running: set[str] = set()
        self.overlaps: list[str] = []
        self.lock = threading.Lock()
        self.maps: Any = None


def declare(seen: Seen) -> None:
    seen.maps = kopf.cache("configmaps", id="maps", by={"value": "data.value"})

    @kopf.on.reconcile(KIND, owns=["configmaps", "secrets"], deletion=True)
    async def sync(name: str, spec: Any, deleting: bool, conditions: Any, children: Any, **_: Any) -> None:
        with seen.lock:
            seen.overlaps += [name] if name in seen.running else []
            seen.running.add(name)
        try:
            own = {child.metadata.name.rpartition("-")[0] for child in children["configmaps"]}
            assert own <= {name}, own
            value = spec["value"]
            if not deleting:
                await kopf.apply(desired(name, value), prune=True, conflict="force")
                conditions.set("Applied", True, reason="Applied", message=str(value))
            seen.values[name] = value
        finally:
            seen.running.discard(name)

    @kopf.on.reconcile(KIND, id="secrets", owns=[kopf.owned("secrets", controller=True)])
    async def keep_secret(name: str, spec: Any, **_: Any) -> None:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
        await kopf.apply({**secret, "stringData": {"value": str(spec["value"])}}, conflict="force")


def desired(name: str, value: int) -> list[dict[str, Any]]:
    """An odd value has two children."""
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{name}-{number}"},
            "data": {"value": str(value)},
        }
        for number in range(1 + value % 2)
    ]


Fault = Callable[[Cluster], None]


def cut_and(*args: Any, **options: Any) -> Fault:
    def inject(cluster: Cluster) -> None:
        cluster.inject(*args, **options)
        cluster.drop_watches()

    return inject


def expire(cluster: Cluster) -> None:
    cluster.compact()
    cut_and("gone", times=4)(cluster)


def restart(cluster: Cluster) -> None:
    """The server is unreachable, and has forgotten its history when it is back."""
    cluster.disconnect_clients()
    cluster.compact()


FAULTS: dict[str, Fault] = {
    "restarts of the server": restart,
    "cut watches": lambda cluster: cluster.drop_watches(),
    "expired versions": expire,
    "silent watches": lambda cluster: cluster.inject("silence"),
    "500 to everything": cut_and("code", 500),
    "500 to writes": lambda cluster: cluster.inject("code", 500, verb="patch"),
    "500 to lists of children": cut_and("code", 500, resource="configmaps"),
    "403 to children": lambda cluster: cluster.inject("code", 403, verb="patch", resource="configmaps"),
    "422 to children": lambda cluster: cluster.inject("code", 422, verb="patch", resource="secrets"),
    "conflicts": lambda cluster: cluster.inject("conflict", verb="patch"),
    "lost responses to writes": lambda cluster: cluster.inject("lost", verb="patch"),
    "lost responses to deletions": lambda cluster: cluster.inject("lost", verb="delete"),
    "broken connections": lambda cluster: cluster.inject("reset"),
    "overload": cut_and("too-many-requests", 1),
}


def fast_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.networking.error_backoffs = [0.05, 0.1, 0.2]
    settings.watching.inactivity_timeout = 1
    settings.persistence.consistency_timeout = 1
    settings.reconciling.backoff = kopf.Backoff(first=0.1, most=0.5)
    settings.posting.enabled = False
    return settings


@pytest.mark.parametrize("title", FAULTS)
def test_no_trigger_is_lost_and_each_child_is_as_desired(title, kopf_cluster):
    cluster, seen = kopf_cluster, Seen()
    cluster.apply(CRD)
    expected = {f"b{number}": 1 for number in range(COUNT)}
    for name in expected:
        create(cluster, name, 1)
    operator = Operator(cluster, lambda: declare(seen), settings=fast_settings(), strict=False)
    with operator:
        await_children(cluster, seen, expected)
        for number in range(ROUNDS):
            cluster.clear_requests()
            FAULTS[title](cluster)
            change(cluster, expected, number)
            wait_until(lambda: len(cluster.requests) >= REQUESTS, 2)
            cluster.clear_faults()
            await_children(cluster, seen, expected)
        assert seen.overlaps == []


def await_children(cluster: Cluster, seen: Seen, expected: dict[str, int]) -> None:
    """Wait until everything is as desired."""

    def is_converged() -> bool:
        return not wrong_children(cluster, seen, expected) and seen.values.items() >= expected.items()

    if not wait_until(is_converged, CONVERGE):
        raise AssertionError(wrong_children(cluster, seen, expected) or seen.values)


def wait_until(condition: Callable[[], bool], timeout: float) -> bool:
    """Wait until the condition holds, at most so many seconds; `LookupError` counts as not."""
    pause, deadline = threading.Event(), time.monotonic() + timeout
    while time.monotonic() < deadline:
        with contextlib.suppress(LookupError):
            if condition():
                return True
        pause.wait(0.05)
    return False


def create(cluster: Cluster, name: str, value: int) -> None:
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Barrel", "metadata": {"name": name}}
    cluster.create({**body, "spec": {"value": value}})


def change(cluster: Cluster, expected: dict[str, int], number: int) -> None:
    """Change some objects, delete one, create one; and spoil children of others."""
    names = sorted(expected)
    for name in names[number::ROUNDS][:2]:
        expected[name] += 1
        cluster.patch(KIND, name, {"spec": {"value": expected[name]}})
    gone = names[-1 - number]
    del expected[gone]
    cluster.delete(KIND, gone)
    expected[f"new{number}"] = number
    create(cluster, f"new{number}", number)
    spoilt = [name for name in names if name in expected][-2:]
    cluster.patch("configmaps", f"{spoilt[0]}-0", {"data": {"value": "spoilt"}})
    cluster.delete("secrets", spoilt[1])
    cluster.delete("configmaps", f"{spoilt[1]}-0")


def wrong_children(cluster: Cluster, seen: Seen, expected: dict[str, int]) -> list[str]:
    """The differences between the children, the caches and what is desired."""
    required = {
        child["metadata"]["name"]: child["data"]["value"]
        for name, value in expected.items()
        for child in desired(name, value)
    }
    found = {it["metadata"]["name"]: it["data"]["value"] for it in cluster.list("configmaps")}
    cached = {it.metadata.name: it["data"]["value"] for it in seen.maps}
    wrong = [f"child {item}" for item in found.items() ^ required.items()]
    wrong += [f"cached {item}" for item in cached.items() ^ required.items()]
    selected = [it for value in seen.maps.keys("value") for it in seen.maps.select(value=value)]
    by_keys = {it.metadata.name for it in selected}
    wrong += [f"by the keys: {by_keys}"] if by_keys != set(required) else []
    secrets = {it["metadata"]["name"] for it in cluster.list("secrets")}
    wrong += [f"secret of {name}" for name in secrets ^ set(expected)]
    for body in cluster.list(KIND):
        name = body["metadata"]["name"]
        conditions = (body.get("status") or {}).get("conditions") or []
        if name not in expected or [it["message"] for it in conditions] != [str(expected[name])]:
            wrong.append(f"{name}: {conditions}, {body['metadata']}")
    return wrong
