"""Additions of kopf-rs, as used in typed operators."""

from collections.abc import Mapping
from typing import Any, assert_type

import kopf
from kopf import client


@kopf.index("services", metadata_only=True)
def services(name: str, labels: kopf.Labels, **_: Any) -> Mapping[str, str | None]:
    return {name: labels.get("app")}


@kopf.on.event("pods", metadata_only=True)
def watch(name: str | None, **_: Any) -> None: ...


@kopf.daemon("pods", metadata_only=True)
async def follow(stopped: kopf.DaemonStopped, **_: Any) -> None:
    await stopped.wait(5.0)


@kopf.timer("pods", metadata_only=True, interval=5)
async def tick(name: str, **_: Any) -> None: ...


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.networking.request_limit = None
    settings.queueing.max_pending_events = 10
    settings.client.field_manager = "mine"


@kopf.on.create("widgets")
async def made(api: client.Api, name: str, **_: Any) -> None:
    body: kopf.Body = await api.get("configmaps", name)
    found: kopf.Body | None = await kopf.wait_for("configmaps", name, client.exists, timeout=1)
    either = kopf.any_([client.gone, client.field("data.x", "1")])
    await api.using(dry_run=True).wait_for("configmaps", name, either, timeout=None)
    names = [item.metadata.name async for item in api.list("configmaps")]
    listing: list[kopf.Body] = await api.list("configmaps")
    async for event in api.watch("configmaps"):
        old: kopf.Body | None = event.old
        print(body, found, names, listing, old)


@kopf.on.create("widgets")
def made_in_a_thread(api: client.SyncApi, name: str, **_: Any) -> None:
    api.edit("configmaps", name, lambda body: body["data"].update(x="1"))
    left: kopf.Body | None = api.delete("configmaps", name)
    print(left, [item.spec for item in api.list("configmaps")])


async def main() -> str:
    async with kopf.connect() as api:
        try:
            await api.create({"apiVersion": "v1", "kind": "ConfigMap"})
        except client.AlreadyExists as error:
            return f"{error.reason} {error.uncertain} {error.body}"
    with kopf.connect_sync(context="other") as blocking:
        return blocking.get("namespaces", "default").metadata.name or ""


def shops_of(labels: kopf.Labels, **_: Any) -> list[str]:
    return list(labels.values())


@kopf.on.reconcile(
    "shops",
    owns=["deployments", kopf.owned(("v1", "pods"), controller=True)],
    watches=[kopf.watch("secrets", by="spec.secret"), kopf.watch("configmaps", map=shops_of)],
    changed=["essence", "status.phase"],
    backoff=kopf.Backoff(first=5),
    initial="unobserved",
)
async def sync(
    body: kopf.Body, api: client.Api, conditions: kopf.Conditions, deleting: bool, **_: Any
) -> kopf.Requeue | None:
    conditions.set("Ready", None, reason="Unclear")
    ready: kopf.Condition = conditions["Ready"]
    if deleting or ready.generation is None:
        raise kopf.Requeue(5, "soon")
    kopf.trigger(kopf.ref(body))
    return None


async def test_sync(body: kopf.Body, api: client.Api, conditions: kopf.Conditions) -> None:
    done = await sync(body=body, api=api, conditions=conditions, deleting=False)
    assert_type(done, kopf.Requeue | None)
