"""The requests of the operator, with the official client. Kopf sets its credentials at the login."""

import secrets

import children
import conditions
import kopf
from kubernetes import client
from kubernetes.client.exceptions import ApiException

APPLY = {"_content_type": "application/apply-patch+yaml", "field_manager": children.MANAGER, "force": True}


def reconcile(cache):
    """Make the children of the cache as its spec requires. Returns its StatefulSet, as the server has it.

    It can run at any time, and repeatedly: without a difference, the server changes nothing.
    """
    name, namespace, spec = cache["metadata"]["name"], cache["metadata"]["namespace"], cache["spec"]
    secret_uid = ensure_secret(cache)
    service, workload = children.service(name), children.stateful_set(name, spec, secret_uid)
    kopf.adopt([service, workload], owner=cache)
    client.CoreV1Api().patch_namespaced_service(name, namespace, service, **APPLY)
    applied = client.AppsV1Api().patch_namespaced_stateful_set(name, namespace, workload, **APPLY)
    return client.ApiClient().sanitize_for_serialization(applied)


def ensure_secret(cache):
    """Create the Secret with a random password, unless it exists. Returns its UID."""
    name, namespace = cache["metadata"]["name"], cache["metadata"]["namespace"]
    secret = children.secret(name, secrets.token_urlsafe(24))
    kopf.adopt(secret, owner=cache)
    try:
        return client.CoreV1Api().create_namespaced_secret(namespace, secret).metadata.uid
    except ApiException as error:
        if error.status != 409:
            raise
    try:
        return client.CoreV1Api().read_namespaced_secret(name, namespace).metadata.uid
    except ApiException as error:
        if error.status != 404:
            raise
        raise kopf.TemporaryError("The Secret was deleted meanwhile.", delay=1) from None


def find_cache(namespace, name):
    """The cache as it is now, or None."""
    try:
        return client.CustomObjectsApi().get_namespaced_custom_object(
            children.GROUP, children.VERSION, namespace, children.PLURAL, name
        )
    except ApiException as error:
        if error.status != 404:
            raise
        return None


def status_of(cache, workload):
    """The status for this state of the StatefulSet."""
    return conditions.status_of(
        cache["metadata"]["generation"], cache["spec"]["replicas"], workload, cache.get("status") or {}
    )


def write_status(cache, status):
    """Write the status if it differs, unless the cache is gone."""
    name, namespace = cache["metadata"]["name"], cache["metadata"]["namespace"]
    if all((cache.get("status") or {}).get(key) == value for key, value in status.items()):
        return
    try:
        client.CustomObjectsApi().patch_namespaced_custom_object_status(
            children.GROUP, children.VERSION, namespace, children.PLURAL, name, {"status": status}
        )
    except ApiException as error:
        if error.status != 404:
            raise


def ensure_backup_job(name, namespace, spec, uid):
    """Start the job of the last backup, unless it exists. Returns its status."""
    job = children.backup_job(name, spec, uid)
    try:
        found = client.BatchV1Api().create_namespaced_job(namespace, job)
    except ApiException as error:
        if error.status != 409:
            raise
        found = client.BatchV1Api().read_namespaced_job(job["metadata"]["name"], namespace)
    return client.ApiClient().sanitize_for_serialization(found).get("status", {})
