"""Keep a ConfigMap with the content of each generator, like the example controller of kube-rs."""

import kopf


@kopf.on.reconcile("configmapgenerators", owns=["configmaps"], resync=300)
async def generate(name, spec, **_):
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-configmap"}}
    await kopf.apply(config | {"data": {"content": spec["content"]}}, conflict="force")
