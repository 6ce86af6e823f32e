"""An operator of accounts in the style of asyncio, with kubernetes_asyncio: everything is a coroutine.

It logs in by itself, keeps an index of config maps, has sub-handlers that are made by the spec, timers,
daemons, a probe, and one session of the client for all handlers.
"""

import asyncio
import functools

import kopf
import kubernetes_asyncio
from kubernetes_asyncio import client

GROUP = "operators.testing.kopf.dev"


@kopf.on.login(retries=3, backoff=1)
async def login(**kwargs):
    return await kopf.login_via_async_client(**kwargs)


@kopf.on.startup()
async def open_session(memo, settings, **_):
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP, key="last")
    settings.networking.error_backoffs = [0.1, 0.1]
    await kubernetes_asyncio.config.load_kube_config()
    memo.api = client.ApiClient()
    memo.core = client.CoreV1Api(memo.api)
    memo.tasks = set()


@kopf.on.cleanup()
async def close_session(memo, logger, **_):
    await memo.api.close()
    logger.info("The session is closed.")


@kopf.index("configmaps", labels={"plan": kopf.PRESENT})
async def plans(name, labels, body, **_):
    return {labels["plan"]: body.get("data", {})}


@kopf.on.create("accounts", when=lambda spec, **_: not spec.get("ignored"))
async def create(spec, plans: kopf.Index[str, dict], memo, namespace, name, patch, **_):
    plan, *_ = plans.get(spec["plan"], [None])
    if plan is None:
        raise kopf.TemporaryError(f"There is no plan {spec['plan']!r}.", delay=0.3)

    async def make(kind: str, *, retry, **_):
        if retry == 0:
            raise kopf.TemporaryError("Later.", delay=0.1)
        config_map = client.V1ConfigMap(metadata=client.V1ObjectMeta(name=f"{name}-{kind}"), data=dict(plan))
        kopf.append_owner_reference(config_map)
        kopf.adjust_namespace(config_map)
        await memo.core.create_namespaced_config_map(namespace, config_map)
        return kind

    fns = {kind: functools.partial(make, kind) for kind in spec.get("parts", [])}
    await kopf.execute(fns=fns)
    patch.metadata.labels["plan"] = spec["plan"]
    return {"parts": len(fns)}


@kopf.on.field("accounts", field="spec.limits.cpu", old=kopf.PRESENT)
async def relimit(old, new, body, **_):
    await asyncio.sleep(0)
    kopf.event(body, type="Normal", reason="Relimited", message=f"{old} to {new}")
    return {"from": old, "to": new}


@kopf.daemon("accounts", initial_delay=0.1, cancellation_polling=0.5)
async def follow(stopped, body, patch, memo, **_):
    await stopped.wait(0.2)
    patch.status["followed"] = body.spec["plan"]
    if not stopped:
        raise kopf.TemporaryError("Continue with the patch applied.", delay=0.5)


@kopf.timer(
    "accounts", interval=0.3, idle=0.1, field="spec.limits.cpu", value=lambda value, **_: value == "2"
)
async def beat(patch, status, **_):
    patch.status["beats"] = min(status.get("beats", 0) + 1, 3)


@kopf.on.delete("accounts")
async def leave(name, namespace, memo, logger, **_):
    logger.info(f"{name} leaves.")


@kopf.on.probe(id="accounts")
async def probe(memo, **_):
    return len(memo)
