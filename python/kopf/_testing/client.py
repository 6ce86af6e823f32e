"""HTTP client of the testing kit, with the credentials of one user.

It shares no code with the engine, so that tests see the mistakes of the engine.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import pathlib
import ssl
import tempfile
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from kopf._objects.credentials import ConnectionInfo
from kopf._testing.control_plane import ClusterUnavailableError

USER_AGENT = "kopf-testing"
JSON = "application/json"
MERGE = "application/merge-patch+json"
TIMEOUT = 30.0
# In the user of a kubeconfig.
CREDENTIALS = {"token", "tokenFile", "client-certificate", "client-certificate-data", "username"}
PLUGINS = ("exec", "auth-provider")


class ApiError(Exception):
    """The API server has rejected a request; `code` and `reason` are those of its `Status`."""

    __module__ = "kopf.testing"

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(f"{reason or 'ApiError'} ({code}): {message}")
        self.code = code
        self.reason = reason


class Client:
    """Requests of one user, from any thread; idle connections are reused."""

    def __init__(self, info: ConnectionInfo) -> None:
        super().__init__()
        self.info = info
        self._url = urllib.parse.urlsplit(self.info.server)
        self._headers = {"Accept": JSON, "User-Agent": USER_AGENT, **self.info.as_http_headers()}
        self._ssl = _ssl_context(info) if self._url.scheme == "https" else None
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._is_closed = False

    def call(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> Any:
        """Make a request; the decoded response, or `ApiError`."""
        payload = None if body is None else json.dumps(body)
        headers = self._headers | ({"Content-Type": content_type} if payload is not None else {})
        connection = self._take_idle() or self._connect(TIMEOUT)
        path = self._url.path.rstrip("/") + path
        try:
            try:
                connection.request(method, path, payload, headers)
                response = connection.getresponse()
            except (ConnectionError, http.client.HTTPException):
                # An idle connection may have been closed by the server in between: once more with a new one.
                connection.close()
                connection = self._connect(TIMEOUT)
                connection.request(method, path, payload, headers)
                response = connection.getresponse()
            text = response.read()
        except BaseException:
            connection.close()
            raise
        self._keep_idle(connection)
        if response.status >= 400:
            raise _api_error(response.status, text)
        content_type = response.headers.get_content_type()
        return json.loads(text) if text and content_type == JSON else text.decode(errors="replace")

    def watch(self, path: str, silence_timeout: float) -> Iterator[dict[str, Any]]:
        """The events of a watch, until it is closed or silent for so many seconds."""
        connection = self._connect(silence_timeout)
        try:
            connection.request("GET", self._url.path.rstrip("/") + path, headers=self._headers)
            response = connection.getresponse()
            if response.status >= 400:
                raise _api_error(response.status, response.read())
            while line := response.readline():
                yield json.loads(line)
        except (TimeoutError, http.client.HTTPException, ConnectionError):
            return
        finally:
            connection.close()

    def close(self) -> None:
        """Close the idle connections; those in use are closed after their requests."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take_idle(self) -> http.client.HTTPConnection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _keep_idle(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "localhost", self._url.port
        if self._ssl is not None:
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=self._ssl)
        return http.client.HTTPConnection(host, port, timeout=timeout)


def _api_error(code: int, text: bytes) -> ApiError:
    try:
        status = json.loads(text)
    except ValueError:
        status = {}
    if not isinstance(status, dict):
        status = {}
    return ApiError(code, status.get("reason", ""), status.get("message", text.decode(errors="replace")))


def read_kubeconfig(path: pathlib.Path) -> ConnectionInfo:
    """The credentials of the current context of one file. Plugins are not executed.

    Raises:
        ClusterUnavailableError: The context is not complete in this file, or needs a plugin.
    """
    config = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    context = _find_entry(path, config, "contexts", config.get("current-context"))["context"]
    cluster = _find_entry(path, config, "clusters", context["cluster"])["cluster"]
    user = _find_entry(path, config, "users", context["user"]).get("user") or {}
    plugin = next((key for key in PLUGINS if user.get(key)), None)
    if plugin is not None and not user.keys() & CREDENTIALS:
        raise ClusterUnavailableError(
            f"The user {context['user']!r} of the kubeconfig {path} has credentials of a plugin ({plugin})."
            " The testing kit executes no plugins. Use a kubeconfig with a token, such as one of"
            " `kubectl create token`, or with a client certificate."
        )
    token = user.get("token")
    if token is None and "tokenFile" in user:
        token = (path.parent / user["tokenFile"]).read_text(encoding="utf-8").strip()
    return ConnectionInfo(
        server=cluster["server"],
        ca_data=_read_pem(cluster, "certificate-authority", path.parent),
        insecure=cluster.get("insecure-skip-tls-verify"),
        certificate_data=_read_pem(user, "client-certificate", path.parent),
        private_key_data=_read_pem(user, "client-key", path.parent),
        username=user.get("username"),
        password=user.get("password"),
        token=token,
        default_namespace=context.get("namespace"),
    )


def _find_entry(path: pathlib.Path, config: Mapping[str, Any], section: str, name: Any) -> dict[str, Any]:
    for item in config.get(section) or []:
        if item["name"] == name:
            return dict(item)
    raise ClusterUnavailableError(
        f"The kubeconfig {path} has no {section} named {name!r}. The testing kit reads only one file, the"
        " first one of KUBECONFIG. To merge several into one, use `kubectl config view --flatten`."
    )


def _read_pem(section: Mapping[str, Any], key: str, folder: pathlib.Path) -> str | None:
    if f"{key}-data" in section:
        return base64.b64decode(section[f"{key}-data"]).decode()
    return (folder / section[key]).read_text(encoding="utf-8") if key in section else None


def _ssl_context(info: ConnectionInfo) -> ssl.SSLContext:
    authority = info.ca_data.decode() if isinstance(info.ca_data, bytes) else info.ca_data
    # Loading the authorities of the system takes longer than a whole test: only if there is no own one.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if authority else ssl.create_default_context()
    if authority:
        context.load_verify_locations(cadata=authority)
    if info.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if info.certificate_data and info.private_key_data:
        # The standard library reads certificates from files only.
        handle, name = tempfile.mkstemp()
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(f"{info.certificate_data!s}\n{info.private_key_data!s}\n")
            context.load_cert_chain(name)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(name)
    return context
