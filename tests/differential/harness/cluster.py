"""A minimal client of the Kubernetes API on the standard library, with one connection per thread.

It shares no code with the product, so that an error in the product's client cannot hide here.
"""

from __future__ import annotations

import base64
import dataclasses
import http.client
import json
import os
import pathlib
import ssl
import tempfile
import threading
import time
import urllib.parse
from typing import Any

import yaml

Object = dict[str, Any]

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
# How often a request is sent that the server rejects with 429: it does not serve a new resource yet.
ATTEMPTS = 30
PAUSE = 0.3


class ApiError(Exception):
    """The API server has responded with an error."""

    def __init__(self, status: int, reason: str, message: str, request: str) -> None:
        super().__init__(f"{request}: {status} {reason}: {message}")
        self.status, self.reason, self.message = status, reason, message


class Endpoint:
    """The address and the credentials of the current context of a kubeconfig."""

    def __init__(self, kubeconfig: str | os.PathLike[str]) -> None:
        config = yaml.safe_load(pathlib.Path(kubeconfig).read_text())
        context = _named(config, "contexts", config["current-context"])["context"]
        cluster = _named(config, "clusters", context["cluster"])["cluster"]
        user = _named(config, "users", context["user"])["user"]
        url = urllib.parse.urlsplit(cluster["server"])
        self.scheme, self.host = url.scheme, url.hostname or "localhost"
        self.port = url.port or (443 if url.scheme == "https" else 80)
        self.token: str | None = user.get("token")
        self.tls = _tls(cluster, user) if url.scheme == "https" else None


def _named(config: Object, section: str, name: str) -> Object:
    return next(dict(item) for item in config[section] if item["name"] == name)


def _tls(cluster: Object, user: Object) -> ssl.SSLContext:
    authority = cluster.get("certificate-authority-data")
    tls = ssl.create_default_context(
        cafile=cluster.get("certificate-authority"),
        cadata=base64.b64decode(authority).decode() if authority else None,
    )
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    if "client-certificate" in user:
        tls.load_cert_chain(user["client-certificate"], user["client-key"])
    elif "client-certificate-data" in user:
        # The standard library reads certificates from files only.
        with tempfile.NamedTemporaryFile() as pair:
            for key in ("client-certificate-data", "client-key-data"):
                pair.write(base64.b64decode(user[key]) + b"\n")
            pair.flush()
            tls.load_cert_chain(pair.name)
    return tls


class Cluster:
    """Requests of the harness to the API server, which bypass the recording proxy."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._local = threading.local()

    def request(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> Object:
        """The decoded response; `ApiError` for an error."""
        payload = None if body is None else json.dumps(body).encode()
        headers = {"Accept": JSON}
        if self.endpoint.token:
            headers["Authorization"] = f"Bearer {self.endpoint.token}"
        if payload is not None:
            headers["Content-Type"] = content_type
        status, text = 0, b""
        for attempt in range(ATTEMPTS):
            try:
                status, text = self._exchange(method, path, payload, headers)
            except (http.client.HTTPException, OSError):
                if attempt:
                    raise
                continue  # an idle connection that the server has closed
            if status != 429:
                break
            time.sleep(PAUSE)
        data = json.loads(text) if text[:1] == b"{" else {}
        if status >= 400:
            message = data.get("message", text.decode())
            raise ApiError(status, data.get("reason", ""), message, f"{method} {path}")
        return dict(data)

    def _exchange(
        self, method: str, path: str, payload: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._connect()
        try:
            connection.request(method, path, body=payload, headers=headers)
            response = connection.getresponse()
            return response.status, response.read()
        except (http.client.HTTPException, OSError):
            connection.close()
            self._local.connection = None
            raise

    def _connect(self) -> http.client.HTTPConnection:
        end = self.endpoint
        if end.tls is not None:
            return http.client.HTTPSConnection(end.host, end.port, context=end.tls, timeout=60)
        return http.client.HTTPConnection(end.host, end.port, timeout=60)

    def get(self, path: str) -> Object:
        return self.request("GET", path)

    def find(self, path: str) -> Object | None:
        """The object or the list, or None if it does not exist."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def items(self, path: str) -> list[Object]:
        """The objects of a list; none if the API server does not serve the resource."""
        return list((self.find(path) or {}).get("items", []))


@dataclasses.dataclass(frozen=True)
class Kind:
    """A resource kind with its place in the API."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str | None = None, name: str | None = None, sub: str | None = None) -> str:
        """The path of an object or its subresource; without a name, that of the list."""
        root = "/apis/" if "/" in self.api_version else "/api/"
        place = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        rest = "".join(f"/{part}" for part in (name, sub) if part)
        return f"{root}{self.api_version}{place}/{self.plural}{rest}"


ADMISSION = "admissionregistration.k8s.io/v1"
BUILTIN_KINDS = {
    kind.plural: kind
    for kind in [
        Kind("v1", "Namespace", "namespaces", namespaced=False),
        Kind("v1", "Pod", "pods"),
        Kind("v1", "ConfigMap", "configmaps"),
        Kind("v1", "Secret", "secrets"),
        Kind("v1", "Event", "events"),
        Kind("apps/v1", "Deployment", "deployments"),
        Kind("batch/v1", "Job", "jobs"),
        Kind("kopf.dev/v1", "KopfPeering", "kopfpeerings"),
        Kind("kopf.dev/v1", "ClusterKopfPeering", "clusterkopfpeerings", namespaced=False),
        Kind(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            namespaced=False,
        ),
        Kind(
            ADMISSION, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", namespaced=False
        ),
        Kind(ADMISSION, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", namespaced=False),
    ]
}
