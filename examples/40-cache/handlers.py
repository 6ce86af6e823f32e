"""An operator of Valkey caches. Run it with `kopf dev`, or with `kopf run -A handlers.py`."""

import os
import secrets

import children
import kopf
from conditions import states_of
from webhooks import ServiceServer


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    settings.scanning.disabled = True  # the CRD is applied first, and namespaces need no permission
    selector = ",".join(f"{key}={value}" for key, value in children.MANAGED_BY.items())
    settings.watching.label_selectors["statefulsets"] = selector
    settings.watching.label_selectors["services"] = selector
    settings.admission.managed = f"webhooks.{children.GROUP}"
    if "WEBHOOK_SERVICE" in os.environ:
        namespace, name = os.environ["WEBHOOK_SERVICE"].split("/")
        settings.admission.server = ServiceServer(namespace, name, port=9443)
    else:
        settings.admission.server = kopf.WebhookServer(addr="127.0.0.1", host="127.0.0.1")


@kopf.on.reconcile(
    "caches",
    owns=[
        kopf.owned("statefulsets", labels=children.MANAGED_BY),
        kopf.owned("services", labels=children.MANAGED_BY),
    ],
    observe=True,
)
async def reconcile(body, name, spec, patch, api, conditions, logger, **_):
    """Apply all children; called again whenever the cache or one of them has changed."""
    secret = await ensure_secret(name, api)
    workload = children.stateful_set(name, spec, secret.metadata.uid)
    applied = await kopf.apply([children.service(name), workload], conflict="force")
    logger.info("The children are applied.")
    if body.status.get("observedGeneration") == body.metadata["generation"]:
        # The cache is the same: another client has changed or deleted the children.
        for child in [*applied.created, *applied.changed]:
            message = f"The {child.kind.partition('.')[0]} differed; it is restored."
            kopf.warn(body, reason="Repaired", message=message)
            logger.warning(message)
    live = applied.objects["StatefulSet", name]
    states, reason, message, ready = states_of(spec["replicas"], live, conditions)
    for kind, status in states.items():
        conditions.set(kind, status, reason=reason, message=message)
    patch.status["readyNodes"] = ready


async def ensure_secret(name, api):
    """The Secret of the cache; it is created with a random password, unless it exists."""
    found = await api.find("secrets", name)
    if found is None:
        applied = await kopf.apply(children.secret(name, secrets.token_urlsafe(24)))
        found = applied.objects["Secret", name]
    return found


@kopf.index("caches")
def caches_by_readiness(name, namespace, status, **_):
    ready = [it["status"] for it in status.get("conditions", []) if it["type"] == "Ready"]
    return {"ready" if ready == ["True"] else "not ready": f"{namespace}/{name}"}


@kopf.on.probe(id="caches")
def count_caches(caches_by_readiness: kopf.Index, **_):
    return {state: len(names) for state, names in caches_by_readiness.items()}


@kopf.timer("caches", interval=60, initial_delay=60)
async def check_secret(body, name, api, **_):
    """Notice a deleted Secret: the operator may not watch Secrets."""
    if await api.find("secrets", name) is None:
        kopf.trigger(body)


@kopf.on.mutate("caches", id="set-max-memory", operations=["CREATE", "UPDATE"])
def set_max_memory(spec, patch, **_):
    if "maxMemory" not in spec and "memory" in spec:
        patch.spec["maxMemory"] = children.max_memory_of(spec)


@kopf.on.validate("caches", id="check-memory", operations=["CREATE", "UPDATE"])
def check_memory(spec, warnings, **_):
    used = children.max_memory_of(spec)
    if used > spec["memory"]:
        raise kopf.AdmissionError("maxMemory cannot be more than memory.", code=422)
    if used > spec["memory"] * 9 // 10:
        warnings.append("Less than 10 % of the memory is left for connections and backups.")


PROTECTED = {f"{children.GROUP}/protected": "true"}


@kopf.on.validate("caches", id="keep-protected", operations=["DELETE"], annotations=PROTECTED)
def keep_protected(name, **_):
    raise kopf.AdmissionError(f"{name} is protected: remove the annotation first.", code=403)


@kopf.on.delete("caches", field="spec.backup", value=kopf.PRESENT)
async def back_up(body, name, spec, uid, api, **_):
    """Copy the data to a volume. Kubernetes keeps the cache and its children until this succeeds."""
    job = children.backup_job(name, spec, uid)
    found = await api.find("jobs", job["metadata"]["name"]) or await api.create(job)
    if found.status.get("succeeded"):
        kopf.info(body, reason="BackedUp", message="The last backup is complete.")
    elif any(it["type"] == "Failed" and it["status"] == "True" for it in found.status.get("conditions", [])):
        raise kopf.TemporaryError(
            "The backup has failed: delete its job to repeat it, or spec.backup.", delay=60
        )
    else:
        raise kopf.TemporaryError("The backup is running.", delay=5)
