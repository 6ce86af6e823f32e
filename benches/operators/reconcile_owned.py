"""R2: reconcilers that find each child as desired."""

import kopf
from reporting import GROUP, is_probe, saw


@kopf.on.reconcile(*GROUP, owns=["configmaps"])
async def reconcile(name, namespace, spec, children: kopf.Children, **_):
    saw(name, 0)
    if is_probe(name):
        return
    data = {"image": spec["image"]}
    child = children.get("configmaps", name, namespace)
    if child is None or child["data"] != data:
        await kopf.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
