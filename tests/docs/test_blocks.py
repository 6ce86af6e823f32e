"""The Python blocks of the pages run as operators, while objects are created, changed and deleted."""

import pathlib
import re

import pytest
from kopf.testing import Cluster, Operator

from tests.support.crds import PEERINGS, crd

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOTEL = "hotel.examples.kopf.dev"
SPECS = {
    "Cache": {"nodes": 2, "replicas": 2},
    "Cake": {"minutes": 30},
    "Delivery": {"room": 12},
    "Guest": {"title": "Doctor", "nights": 8, "room": 12},
    "Letter": {"text": "Hello"},
    "Order": {"bottles": 6},
    "Reservation": {"seats": 4},
    "Shop": {"secret": "keys", "greeting": "Hello", "replicas": 1, "image": "web:1"},
    "Site": {"domain": "a.example.com", "image": "web:1", "public": True},
    "Tap": {"address": "meter", "limit": 5},
    "Tour": {"stops": ["Rome", "Oslo"]},
    "Widget": {"size": 1},
}
PLURALS = {kind: f"{kind.lower().removesuffix('y')}{'ies' if kind[-1] == 'y' else 's'}" for kind in SPECS}
LABELS = {"vip": "yes", "floor": "4", "app": "shop", "tier": "front", "shops": "first"}
LABELS["app.kubernetes.io/managed-by"] = "my-operator"
LABELS["example.com/task"] = "report"
CONTAINER = {"name": "web", "image": "web:1"}
BUILT_IN = [
    {"apiVersion": "v1", "kind": "Secret"},
    {"apiVersion": "v1", "kind": "ConfigMap"},
    {"apiVersion": "v1", "kind": "Node", "spec": {}},
    {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [CONTAINER]}},
    {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "spec": {
            "serviceName": "other",
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": {"containers": [CONTAINER]}},
        },
    },
]
# The author of the block has these functions elsewhere.
OTHERS = {
    "daemons": "async def read_the_meter(address):\n    return 9\n",
    "timers": "def read_the_meter(address):\n    return 9\n",
}
# Credentials of a cluster that does not exist; a registry of the program; handlers that are not called;
# mistakes for the type checker.
SKIPPED = {"authentication", "embedding", "handler-not-called", "type-checking"}
DECORATED = re.compile(
    r"^@kopf\.(?:on\.(?:create|update|delete|field|event|reconcile)|daemon|timer)\("
    r".*\n(?:@.*\n)*(?:async )?def (\w+)",
    re.M,
)
BLOCKS = {
    f"{path.stem}:{number}": text
    for path in [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/how-to/*.md")]
    for number, text in enumerate(re.findall(r"^```python\n(.*?)^```", path.read_text(), re.M | re.S))
    if re.search(r"^@kopf\.", text, re.M) and path.stem not in SKIPPED
}


@pytest.fixture
def cluster():
    with Cluster(controllers=True) as cluster:
        cluster.apply(PEERINGS)
        names = PLURALS.items()
        cluster.apply([crd(plural, kind, group=HOTEL) for kind, plural in names])
        yield cluster


def objects():
    yield from ({**it, "metadata": {"name": "other", "labels": LABELS}} for it in BUILT_IN)
    for kind, spec in SPECS.items():
        metadata = {"name": "first", "labels": LABELS, "annotations": {"floor": "3"}}
        yield {"apiVersion": f"{HOTEL}/v1", "kind": kind, "metadata": metadata, "spec": spec}


def test_blocks_are_seen():
    assert len(BLOCKS) > 35
    assert len({name for text in BLOCKS.values() for name in DECORATED.findall(text)}) > 15


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_is_an_operator_without_errors(cluster, tmp_path, caplog, name):
    caplog.set_level("DEBUG")
    path = tmp_path / "handlers.py"
    page = name.partition(":")[0]
    block = BLOCKS[name].replace("8090", "0")
    path.write_text(OTHERS.get(page, "") + block)
    with Operator(cluster, path) as operator:
        for body in objects():
            cluster.create(body)
        operator.wait_until_idle()
        for kind in SPECS:
            cluster.patch(PLURALS[kind], "first", {"spec": {"other": 1}})
        cluster.patch("nodes", "other", {"spec": {"unschedulable": True}})
        operator.wait_until_idle()
        for plural in PLURALS.values():
            cluster.delete(plural, "first")
        cluster.delete("nodes", "other")
        operator.wait_until_idle()
    called = set(re.findall(r"'(\w+)(?:/[\w.]+)?' is (?:invoked|called)", caplog.text))
    assert set(DECORATED.findall(block)) <= called
