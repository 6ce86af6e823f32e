"""A minimal Kubernetes client over plain HTTP, for the tests and the demo only.

It shares no code with the product, so that an error in the product's client cannot hide in the tests. It
waits on watches with deadlines: no test sleeps for a guessed time.
"""

import base64
import http.client
import json
import os
import pathlib
import ssl
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import yaml

Object = dict[str, Any]
MERGE = "application/merge-patch+json"
JSON = "application/json"


# The prefix of Kopf's annotations; these two keys are not progress of handlers.
PREFIX = "kopf.zalando.org/"
NOT_PROGRESS = ("last-handled-configuration", "touch-dummy")


def decoded(body: Object, name: str) -> Any:
    """The framework's annotation of that name, decoded, or nothing."""
    text = body["metadata"].get("annotations", {}).get(PREFIX + name)
    return None if text is None else json.loads(text)


def essence(body: Object) -> Object | None:
    """The last handled essence that is kept with the object."""
    return decoded(body, "last-handled-configuration")


def progress(body: Object) -> dict[str, Object]:
    """The progress records that are kept with the object, by the handlers' ids."""
    names = [
        key.removeprefix(PREFIX) for key in body["metadata"].get("annotations", {}) if key.startswith(PREFIX)
    ]
    return {name: decoded(body, name) for name in names if name not in NOT_PROGRESS}


def is_settled(body: Object) -> bool:
    """Whether the object as it is now has been handled in full."""
    last = essence(body)
    return last is not None and last.get("spec", {}) == body.get("spec", {}) and not progress(body)


class ApiError(Exception):
    """The API answered with an error; `code` is its HTTP status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Timeout(AssertionError):
    """The condition was not met in time."""


class Resource:
    """Where the objects of one kind live."""

    def __init__(self, group: str, version: str, plural: str, *, namespaced: bool = True) -> None:
        self.group, self.version, self.plural, self.namespaced = group, version, plural, namespaced

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        parts = ["api", self.version] if not self.group else ["apis", self.group, self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/" + "/".join(parts)


NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
API_SERVICES = Resource("apiregistration.k8s.io", "v1", "apiservices", namespaced=False)
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)


class Cluster:
    """One API server as one user sees it."""

    def __init__(self, kubeconfig: pathlib.Path) -> None:
        self.kubeconfig = kubeconfig
        config = yaml.safe_load(kubeconfig.read_text())
        context = _named(config, "contexts", config["current-context"])["context"]
        cluster = _named(config, "clusters", context["cluster"])["cluster"]
        user = _named(config, "users", context["user"])["user"]
        self.name = str(config["current-context"])
        self.server = str(cluster["server"])
        self._url = urllib.parse.urlsplit(self.server)
        self._headers = {"Accept": JSON, "User-Agent": "kopf-rs-tests"}
        self._headers |= _authorization(user, kubeconfig.parent)
        self._ssl = _context(cluster, user, kubeconfig.parent) if self._url.scheme == "https" else None

    def request(self, method: str, path: str, body: Any = None, content: str = JSON) -> Any:
        connection = self._connect(timeout=30)
        try:
            payload = None if body is None else json.dumps(body)
            connection.request(
                method, self._url.path.rstrip("/") + path, payload, self._headers | {"Content-Type": content}
            )
            response = connection.getresponse()
            text = response.read().decode()
            if response.status >= 400:
                raise ApiError(response.status, text)
            return json.loads(text) if text.startswith(("{", "[")) else text
        finally:
            connection.close()

    def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        return dict(self.request("GET", resource.path(namespace, name)))

    def find(self, resource: Resource, namespace: str | None, name: str) -> Object | None:
        """The object, or nothing if it does not exist."""
        try:
            return self.get(resource, namespace, name)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def create(self, resource: Resource, namespace: str | None, body: Object) -> Object:
        return dict(self.request("POST", resource.path(namespace), body))

    def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        patch: Object,
        subresource: str | None = None,
    ) -> Object:
        return dict(self.request("PATCH", resource.path(namespace, name, subresource), patch, MERGE))

    def delete(self, resource: Resource, namespace: str | None, name: str) -> None:
        try:
            self.request("DELETE", resource.path(namespace, name))
        except ApiError as error:
            if error.code != 404:
                raise

    def create_crd(self, crd: Object, *, timeout: float = 60) -> Resource:
        """Create a CRD, unless it is there, and wait until the API really serves it.

        This is later than its condition in the status.
        """
        if self.find(CRDS, None, crd["metadata"]["name"]) is None:
            self.create(CRDS, None, crd)
        return self.await_crd(crd, timeout=timeout)

    def await_crd(self, crd: Object, *, timeout: float = 60) -> Resource:
        name, spec = crd["metadata"]["name"], crd["spec"]
        resource = Resource(
            spec["group"],
            spec["versions"][0]["name"],
            spec["names"]["plural"],
            namespaced=spec["scope"] == "Namespaced",
        )
        self.wait(CRDS, None, name, lambda found: _is_established(found), timeout=timeout)
        until = time.monotonic() + timeout
        while True:
            try:
                self.request("GET", resource.path())
                return resource
            except ApiError as error:
                if error.code not in (404, 429, 503) or time.monotonic() > until:
                    raise
            time.sleep(0.1)  # Nothing is there to be watched yet.

    def await_error(self, path: str, code: int, *, timeout: float = 30) -> None:
        """Wait until the API responds with this error to a GET request."""
        until = time.monotonic() + timeout
        while True:
            try:
                self.request("GET", path)
            except ApiError as error:
                if error.code == code:
                    return
            if time.monotonic() > until:
                raise Timeout(f"{path}: no response {code} in {timeout} s")
            time.sleep(0.1)  # There is nothing to be watched.

    def wait(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        condition: Callable[[Object | None], Any],
        *,
        timeout: float = 60,
        alive: Callable[[], None] = lambda: None,
    ) -> Object | None:
        """Follow one object until the condition holds; None stands for an object that does not exist.

        `alive` is called now and then; it raises if further waiting makes no sense.
        """
        until = time.monotonic() + timeout
        last: Object | None = None
        for last in self._follow(resource, namespace, name, until):
            if condition(last):
                return last
            alive()
        state = json.dumps(last, indent=2)
        raise Timeout(
            f"{resource.plural} {name}: the awaited state did not come in {timeout} s; the last one:\n{state}"
        )

    def _follow(
        self, resource: Resource, namespace: str | None, name: str, until: float
    ) -> Iterator[Object | None]:
        """States of one object as they come, and the same state again about every second."""
        query = f"?fieldSelector=metadata.name%3D{urllib.parse.quote(name)}"
        while time.monotonic() < until:
            page = self.request("GET", resource.path(namespace) + query)
            state = page["items"][0] if page["items"] else None
            yield state
            version = page["metadata"]["resourceVersion"]
            remains = max(1, min(30, int(until - time.monotonic()) + 1))
            query_now = f"{query}&watch=true&resourceVersion={version}&timeoutSeconds={remains}"
            path = resource.path(namespace) + query_now
            connection = self._connect(timeout=1)
            try:
                connection.request("GET", self._url.path.rstrip("/") + path, headers=self._headers)
                response = connection.getresponse()
                if response.status >= 400:
                    raise ApiError(response.status, response.read().decode())
                while time.monotonic() < until:
                    line = response.readline()
                    if not line:
                        break
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        break
                    state = None if event["type"] == "DELETED" else event["object"]
                    yield state
            except (TimeoutError, http.client.HTTPException, ConnectionError):
                pass  # Silence for a second, or a lost stream: list again.
            finally:
                connection.close()

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "localhost", self._url.port
        if self._ssl is not None:
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=self._ssl)
        return http.client.HTTPConnection(host, port, timeout=timeout)


def _is_established(crd: Object | None) -> bool:
    conditions = ((crd or {}).get("status") or {}).get("conditions") or []
    return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)


def _named(config: Object, section: str, name: str) -> Object:
    for item in config.get(section) or []:
        if item["name"] == name:
            return dict(item)
    raise ValueError(f"the kubeconfig has no {section} named {name!r}")


def _authorization(user: Object, folder: pathlib.Path) -> dict[str, str]:
    if "tokenFile" in user:
        return {"Authorization": f"Bearer {(folder / user['tokenFile']).read_text().strip()}"}
    if "token" in user:
        return {"Authorization": f"Bearer {user['token']}"}
    if "username" in user:
        pair = f"{user['username']}:{user.get('password', '')}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    if "exec" in user:
        raise ValueError(
            "exec plugins are not known to this helper; use a kubeconfig with a token or a certificate"
        )
    return {}


def _context(cluster: Object, user: Object, folder: pathlib.Path) -> ssl.SSLContext:
    authority = _material(cluster, "certificate-authority", folder)
    context = ssl.create_default_context(cadata=authority)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = _material(user, "client-certificate", folder), _material(user, "client-key", folder)
    if certificate and key:
        # The standard library reads certificates from files only.
        with tempfile.TemporaryDirectory() as where:
            pair = pathlib.Path(where) / "pair.pem"
            pair.touch(mode=0o600)
            pair.write_text(f"{certificate}\n{key}\n")
            context.load_cert_chain(os.fspath(pair))
    return context


def _material(section: Object, key: str, folder: pathlib.Path) -> str | None:
    if f"{key}-data" in section:
        return base64.b64decode(section[f"{key}-data"]).decode()
    return (folder / section[key]).read_text() if key in section else None
