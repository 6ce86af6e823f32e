"""An operator of web sites in the style of threads and of the official client: everything is synchronous.

A site is a deployment and a service, which are made of models of the client and are adopted; a secret must be
there first. A thread monitors each site. Manual changes of a deployment are reverted.
"""

import threading

import kopf
import kubernetes
from kubernetes import client

KIND = ("operators.testing.kopf.dev", "v1", "sites")
LOCK = threading.Lock()


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, memo: kopf.Memo, logger: kopf.Logger, **_):
    settings.posting.level = 30
    settings.posting.loggers = True
    settings.watching.server_timeout = 60
    settings.watching.connect_timeout = 5
    settings.persistence.finalizer = "operators.testing.kopf.dev/site"
    settings.execution.max_workers = 8
    kubernetes.config.load_kube_config()
    memo.apps, memo.core = client.AppsV1Api(), client.CoreV1Api()
    memo.rounds = {}
    logger.info("The shop is open.")


def make_deployment(name: str, replicas: int, image: str) -> client.V1Deployment:
    labels = {"app": name}
    pod = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels=labels),
        spec=client.V1PodSpec(containers=[client.V1Container(name="web", image=image)]),
    )
    return client.V1Deployment(
        api_version="apps/v1",
        kind="Deployment",
        metadata=client.V1ObjectMeta(name=name),
        spec=client.V1DeploymentSpec(
            replicas=replicas, selector=client.V1LabelSelector(match_labels=labels), template=pod
        ),
    )


@kopf.on.create(*KIND, backoff=1)
@kopf.on.resume(*KIND, backoff=1)
def create(spec, name, namespace, memo, body, logger, retry, **_):
    try:
        memo.core.read_namespaced_secret(spec["secret"], namespace)
    except client.ApiException as e:
        if e.status != 404:
            raise
        raise kopf.TemporaryError(f"The secret {spec['secret']} is not there yet.", delay=0.5) from e

    deployment = make_deployment(name, spec.get("replicas", 1), spec.get("image", "nginx"))
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80}]},
    }
    kopf.adopt([deployment, service])
    kopf.label([deployment, service], {"managed-by": "site-operator"}, nested=["spec.template"])
    for make, item in [
        (memo.apps.create_namespaced_deployment, deployment),
        (memo.core.create_namespaced_service, service),
    ]:
        try:
            make(namespace, item)
        except client.ApiException as e:
            if e.status != 409:
                raise
    kopf.info(body, reason="Published", message="This is not posted: its level is too low.")
    kopf.warn(body, reason="Published", message=f"{name} is published.")
    return {"deployment": name, "retries": retry}


@kopf.on.update(*KIND, field="spec.replicas")
def scale(old, new, name, namespace, memo, patch, diff, **_):
    memo.apps.patch_namespaced_deployment(name, namespace, {"spec": {"replicas": new}})
    patch.status["scaled"] = f"{old} -> {new}"
    patch.status["diff"] = [list(item.field) for item in diff]


@kopf.on.validate(*KIND, id="never")
def never_asked(**_): ...


# There is no admission server in this test, so it is never called.
kopf.get_default_registry()._webhooks._handlers.clear()


@kopf.on.delete(*KIND, optional=False)
def remove(name, namespace, logger, **_):
    logger.info(f"{name} is taken down.")


@kopf.on.event("apps", "v1", "deployments", labels={"managed-by": "site-operator"})
def watch_deployment(type, name, namespace, spec, memo, meta, **_):
    with LOCK:
        memo.setdefault("seen", []).append(type)
    if type == "MODIFIED" and spec["template"]["spec"]["containers"][0]["image"] == "broken":
        patch = {"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "nginx"}]}}}}
        memo.apps.patch_namespaced_deployment(name, namespace, patch)


@kopf.daemon(*KIND, cancellation_timeout=5)
def guard(stopped: kopf.DaemonStopped, name, patch, spec, logger, **_):
    rounds = 0
    while not stopped:
        rounds += 1
        if rounds == 3:
            patch.status["guarded"] = threading.current_thread() is not threading.main_thread()
            return
        stopped.wait(0.1)
