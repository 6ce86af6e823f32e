"""R3: reconcilers that apply a child and set a condition."""

import kopf
from reporting import GROUP, is_probe, saw


@kopf.on.reconcile(*GROUP, owns=["configmaps"])
async def reconcile(name, spec, conditions, **_):
    saw(name, 0)
    if is_probe(name):
        return
    child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    await kopf.apply({**child, "data": {"image": spec["image"]}})
    conditions.set("Ready", True, reason="Applied")
