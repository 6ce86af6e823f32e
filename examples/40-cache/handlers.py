"""An operator of Valkey caches. Run it with `kopf dev`, or with `kopf run -A handlers.py`."""

import os

import api
import children
import kopf
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


@kopf.on.mutate("caches", operations=["CREATE", "UPDATE"])
def set_max_memory(spec, patch, **_):
    if "maxMemory" not in spec and "memory" in spec:
        patch.spec["maxMemory"] = children.max_memory_of(spec)


@kopf.on.validate("caches", operations=["CREATE", "UPDATE"])
def check_memory(spec, warnings, **_):
    used = children.max_memory_of(spec)
    if used > spec["memory"]:
        raise kopf.AdmissionError("maxMemory cannot be more than memory.", code=422)
    if used > spec["memory"] * 9 // 10:
        warnings.append("Less than 10 % of the memory is left for connections and backups.")


@kopf.on.validate("caches", operations=["DELETE"], annotations={f"{children.GROUP}/protected": "true"})
def keep_protected(name, **_):
    raise kopf.AdmissionError(f"{name} is protected: remove the annotation first.", code=403)


@kopf.on.create("caches")
@kopf.on.update("caches", field="spec")
@kopf.on.resume("caches")
def reconcile(body, patch, logger, **_):
    """Apply all children; repeated for caches that exist when the operator starts."""
    workload = api.reconcile(body)
    patch.status.update(api.status_of(body, workload))
    logger.info("The children are applied.")


@kopf.on.event("statefulsets", labels=children.MANAGED_BY)
@kopf.on.event("services", labels=children.MANAGED_BY)
def repair(event, body, labels, namespace, logger, **_):
    """Revert changes of children, recreate deleted ones, and report the state of the nodes."""
    found = api.find_cache(namespace, labels.get(children.CACHE_LABEL, ""))
    if found is None or found["metadata"].get("deletionTimestamp"):
        return
    cache = kopf.Body(found)
    workload = api.reconcile(cache)
    is_changed = (
        body["kind"] == "StatefulSet" and workload["metadata"]["generation"] > body["metadata"]["generation"]
    )
    if event["type"] == "DELETED" or (event["type"] is not None and is_changed):
        kopf.warn(cache, reason="Repaired", message=f"The {body['kind']} differed; it is restored.")
        logger.warning("The object differed from its cache; it is restored.")
    api.write_status(cache, api.status_of(cache, workload))


@kopf.timer("caches", interval=60, initial_delay=60)
def check(body, patch, **_):
    """Repair what no event reports, such as a deleted Secret: the operator may not watch Secrets."""
    status = api.status_of(body, api.reconcile(body))
    if any(body.status.get(key) != value for key, value in status.items()):
        patch.status.update(status)


@kopf.on.delete("caches", field="spec.backup", value=kopf.PRESENT)
def back_up(body, name, namespace, spec, uid, **_):
    """Copy the data to a volume. Kubernetes keeps the cache and its children until this succeeds."""
    status = api.ensure_backup_job(name, namespace, spec, uid)
    if status.get("succeeded"):
        kopf.info(body, reason="BackedUp", message="The last backup is complete.")
    elif any(it["type"] == "Failed" and it["status"] == "True" for it in status.get("conditions", [])):
        raise kopf.TemporaryError(
            "The backup has failed: delete its job to repeat it, or spec.backup.", delay=60
        )
    else:
        raise kopf.TemporaryError("The backup is running.", delay=5)


@kopf.index("caches")
def caches_by_readiness(name, namespace, status, **_):
    ready = [it["status"] for it in status.get("conditions", []) if it["type"] == "Ready"]
    return {"ready" if ready == ["True"] else "not ready": f"{namespace}/{name}"}


@kopf.on.probe(id="caches")
def count_caches(caches_by_readiness: kopf.Index, **_):
    return {state: len(names) for state, names in caches_by_readiness.items()}
