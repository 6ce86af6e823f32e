"""Checks of `kopf doctor`: optional features of the server, and webhook configurations of the operator."""

from __future__ import annotations

import base64
import binascii
import ssl
import time
from collections.abc import Iterator, Mapping
from typing import Any

from kopf._cli.cluster_session import Session
from kopf._cli.findings import Finding
from kopf._cli.permissions import WEBHOOK_GROUP, WEBHOOKS, Resolved, has_webhooks, shared_secret
from kopf._cli.tables import format_age
from kopf._intents.serialization import has_leader_election
from kopf._kits.webhooks.certificate_secrets import SECRETS
from kopf._kits.webhooks.servers import OWN_CERTIFICATES, WebhookServer, has_own_certificate, shared_names
from kopf._kits.webhooks.shared_certificates import CertificateSecretError, SharedCertificate
from kopf._objects.apierrors import ApiError
from kopf._objects.resources import Resource
from kopf._runtime.banner import count_noun

EXPIRY_WARNING = 7 * 24 * 3600.0
"""Seconds before the end of a certificate from which on there is a warning."""


def check_features(session: Session, resolved: Resolved) -> Iterator[Finding]:
    """Check which optional features of watches the server has. It needs two requests.

    The requests are wrong on purpose: a server with the feature rejects them, and nothing is watched.
    """
    resource = next((one for selected in resolved.values() for one in sorted(selected, key=repr)), None)
    if resource is None:
        return
    initial = {
        "watch": "1",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "Exact",
        "timeoutSeconds": "1",
    }
    lists = _rejection(session, resource, initial)
    shards = _rejection(session, resource, {"limit": "1", "shardSelector": "~"})
    if lists is None or shards is None:
        return
    has_lists = "sendInitialEvents" in lists and "feature gate" not in lists
    text = f"streamed lists: {_yes(has_lists)}; shard selectors: {_yes('shard' in shards.lower())}"
    yield Finding("features", "info", text)


def _rejection(session: Session, resource: Resource, params: Mapping[str, str]) -> str | None:
    """The message of the rejection; empty if the server accepts the request; None if nothing is known."""
    try:
        session.api.request("GET", resource.get_url(), params=params)
    except ApiError as error:
        return str(error) if error.code in (400, 422) else None
    return ""


def _yes(has_feature: bool) -> str:
    return "yes" if has_feature else "no"


def check_webhooks(session: Session) -> Iterator[Finding]:
    """Check the server of webhooks, and the configurations that the operator manages."""
    settings = session.settings.admission
    if not has_webhooks(session.registry):
        return
    if settings.server is None:
        text = "there are admission handlers, but settings.admission.server is None"
        yield Finding("webhooks", "fail", text)
    found = 0
    services: set[tuple[Any, Any]] = set()
    name = settings.managed
    for plural in WEBHOOKS if name is not None else ():
        body = session.api.find(f"{WEBHOOK_GROUP}/v1/{plural}", name or "")
        for webhook in (body.get("webhooks") or ()) if body is not None else ():
            found += 1
            service = (webhook.get("clientConfig") or {}).get("service") or {}
            services.add((service.get("namespace"), service.get("name")))
            yield from _check_service(session, webhook)
            yield from check_certificates(webhook, time.time())
    if found:
        yield Finding("webhooks", "ok", f"{count_noun(found, 'webhook')} in {settings.managed}")
    # At the end: the permissions to read the Secret and to list pods may be missing.
    yield from _check_secret(session)
    if has_own_certificate(settings.server) and (
        has_leader_election(session.settings)
        or any(_count_pods(session, *service) > 1 for service in services if all(service))
    ):
        yield Finding("webhooks", "fail", OWN_CERTIFICATES)


def _check_service(session: Session, webhook: Mapping[str, Any]) -> Iterator[Finding]:
    service = (webhook.get("clientConfig") or {}).get("service")
    if not service:
        return
    name, namespace = service.get("name", ""), service.get("namespace", "")
    place = f"{webhook.get('name')}: the Service {namespace}/{name}"
    body = session.api.find("services", name, namespace)
    if body is None:
        yield Finding("webhooks", "fail", f"{place} does not exist: requests are rejected, or not checked")
        return
    port = service.get("port", 443)
    ports = [item.get("port") for item in (body.get("spec") or {}).get("ports") or ()]
    if port not in ports:
        yield Finding("webhooks", "fail", f"{place} has no port {port}")


def _check_secret(session: Session) -> Iterator[Finding]:
    """Check the Secret of the webhook server. If there is none, the operator creates it."""
    server, secret = session.settings.admission.server, shared_secret(session.settings)
    if secret is None or not isinstance(server, WebhookServer):
        return
    namespace, name = secret
    body = session.api.find(SECRETS, name, namespace)
    if body is None:
        return
    try:
        SharedCertificate.parse(body).check(f"{namespace}/{name}", shared_names(server))
    except CertificateSecretError as error:
        yield Finding("webhooks", "fail", str(error))


def _count_pods(session: Session, namespace: str, name: str) -> int:
    """The number of pods behind a Service, without those that are being deleted."""
    body = session.api.find("v1/services", name, namespace)
    selector = (body.get("spec") or {}).get("selector") if body is not None else None
    if not selector:
        return 0
    pods = session.api.list("v1/pods", namespace, labels=dict(selector), metadata_only=True)
    return sum(not pod["metadata"].get("deletionTimestamp") for pod in pods)


def check_certificates(webhook: Mapping[str, Any], now: float) -> Iterator[Finding]:
    """Check the certificates of the authority of a webhook. The time is in seconds since the epoch."""
    bundle = (webhook.get("clientConfig") or {}).get("caBundle")
    end = certificates_end(bundle) if bundle else None
    if end is None:
        return
    name = webhook.get("name")
    if end < now:
        text = f"{name}: the certificate of its authority has expired {format_age(now - end)} ago"
        yield Finding("webhooks", "fail", text)
    elif end - now < EXPIRY_WARNING:
        text = f"{name}: the certificate of its authority expires in {format_age(end - now)}"
        yield Finding("webhooks", "warn", text)


def certificates_end(bundle: str) -> float | None:
    """The time when the first certificate of a `caBundle` expires, in seconds since the epoch.

    `None` if it has no certificates of authorities, or cannot be decoded: the API server reports that.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=base64.b64decode(bundle).decode())
    except (binascii.Error, UnicodeDecodeError, ValueError, ssl.SSLError):
        return None
    ends = [str(known["notAfter"]) for known in context.get_ca_certs() if "notAfter" in known]
    return min(map(ssl.cert_time_to_seconds, ends), default=None)
