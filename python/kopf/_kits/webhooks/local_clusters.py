"""Detection of local development clusters by the certificates and versions of their API servers."""

from __future__ import annotations

import asyncio
import enum
import ssl
import urllib.parse
from collections.abc import Mapping
from typing import Any

from kopf._runtime import bridge

START_LIMIT = 10.0
"""Seconds in which the engine starts, and connects to the cluster."""
START_PAUSE = 0.05
"""Seconds between attempts to reach it."""


class LocalCluster(enum.Enum):
    """A kind of local development cluster."""

    K3S = enum.auto()
    MINIKUBE = enum.auto()
    DOCKER_DESKTOP = enum.auto()


async def detect(engine: bridge.Engine) -> LocalCluster | None:
    """Identify the engine's cluster by the certificate of its API server, or by its version.

    Raises:
        RuntimeError: The API server does not respond.
    """
    loop = asyncio.get_running_loop()
    server, version = await _server_info(engine)
    certificate = await loop.run_in_executor(None, _certificate, server)
    return identify(certificate, version)


async def _server_info(engine: bridge.Engine) -> tuple[str, str]:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + START_LIMIT
    while True:
        try:
            return await loop.run_in_executor(None, engine.server_info)
        except RuntimeError:  # webhook servers start at the same time as the engine, which connects
            if loop.time() >= deadline:
                raise
            await asyncio.sleep(START_PAUSE)


def identify(certificate: Mapping[str, Any] | None, version: str) -> LocalCluster | None:
    """Identify a cluster by a certificate, as from `getpeercert()`, and a version of Kubernetes."""
    fields = certificate or {}
    subject, issuer = _names(fields.get("subject", ())), _names(fields.get("issuer", ()))
    alternatives = {name for kind, name in fields.get("subjectAltName", ()) if kind == "DNS"}
    common, organisation = subject.get("commonName", ""), subject.get("organizationName", "")
    if "k3s" in (common, organisation) or issuer.get("commonName", "").startswith("k3s-"):
        return LocalCluster.K3S
    if common == "minikube" or issuer.get("commonName") == "minikubeCA":
        return LocalCluster.MINIKUBE
    if "docker-for-desktop" in alternatives:
        return LocalCluster.DOCKER_DESKTOP
    return LocalCluster.K3S if "+k3s" in version else None


def _names(parts: Any) -> dict[str, str]:
    return {name: value for part in parts for name, value in part}


# It is not verified here: it only identifies the cluster.
def _certificate(server: str) -> Mapping[str, Any] | None:
    url = urllib.parse.urlsplit(server)
    if url.scheme != "https" or not url.hostname:
        return None
    try:
        pem = ssl.get_server_certificate((url.hostname, url.port or 443), timeout=10)
    except OSError:
        return None
    return bridge.describe_certificate(ssl.PEM_cert_to_DER_cert(pem))
