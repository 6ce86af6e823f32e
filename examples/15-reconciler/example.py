"""Keep a ConfigMap for each shop, as soon as the Secret of the shop exists."""

import kopf


@kopf.on.reconcile(
    "shops",
    owns=["configmaps"],
    watches=[kopf.watch("secrets", by="spec.secret")],
)
async def sync(name, namespace, spec, body, api, conditions, **_):
    if await api.find("secrets", spec["secret"]) is None:
        # The creation of the Secret calls the function again.
        conditions.set("Ready", False, reason="NoSecret", message=f"waiting for {spec['secret']}")
        return
    page = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    page["data"] = {"greeting": spec["greeting"]}
    kopf.adopt(page)
    await api.apply(page, force=True)
    conditions.set("Ready", True, reason="Applied")
