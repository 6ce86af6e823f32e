"""Access to the objects of a cluster in tests: verbs, and waiting for a state."""

from __future__ import annotations

import functools
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from kopf._runtime.context import handler_var
from kopf._testing.client import JSON, MERGE, ApiError, Client
from kopf._testing.discovery import CRDS, Discovery, Object, ResourceMapping
from kopf._testing.embedded import EmbeddedFeatures
from kopf._testing.manifests import Source, apply_order, metadata_of, read
from kopf._testing.mismatches import contains, describe_mismatch, dump_object

Objects = list[Object]
SERVED_TIMEOUT = 60.0
WRITE_METHODS = ("POST", "PUT", "PATCH")
FIELD_MANAGER = "python-handler"
"""The field manager of what handlers write."""

Condition = Callable[[Object | None], Any] | Mapping[str, Any]


class ClusterApi(EmbeddedFeatures):
    """The verbs of a cluster, and waiting for states of its objects.

    Common parameters:
        kind: The kind: a name such as `pods` or `widgets.example.com`, or an object of the kind.
        name: The name of the object.
        namespace: The namespace; by default, that of the cluster object.
        timeout: The timeout in seconds.
        source: An object, a YAML text, a file or a folder of YAML, or a list of these.
    """

    namespace: str

    def __init__(self) -> None:
        super().__init__()
        self._client: Client | None = None
        self._discovery = Discovery(lambda method, path: self.call(method, path))
        self._created: list[tuple[ResourceMapping, str | None, str]] = []

    @property
    def _http(self) -> Client:
        if self._client is None:
            raise RuntimeError("The cluster is not running.")
        return self._client

    def call(self, method: str, path: str, body: Any = None, content: str | None = None) -> Any:
        """Any request; the decoded JSON of the response, or its text. The embedded server neither logs these
        requests nor applies faults to them.

        Args:
            method: The HTTP method.
            path: The path in the server, with the query.
            body: The body, sent as JSON.
            content: The type of the body; None: by the method.
        """
        default = MERGE if method == "PATCH" else JSON
        if method in WRITE_METHODS and handler_var.get(None) is not None:
            # Operators recognise the changes of their handlers by the field manager.
            path += ("&" if "?" in path else "?") + f"fieldManager={FIELD_MANAGER}"
        if self._server is None or (content or default) != default:
            return self._http.call(method, path, body, content or default)
        code, answer = self._server.call(method, path, body)
        if code >= 300:
            raise ApiError(code, answer["reason"], answer["message"])
        return answer

    def create(self, source: Source, *, namespace: str | None = None) -> Object:
        """Create an object; its name must be free."""
        [body] = read(source)
        return self._create(body, namespace)

    def apply(self, source: Source, *, namespace: str | None = None) -> Objects:
        """Create objects, or merge them into those that exist: YAML, files, folders, dicts.

        CRDs are served when this returns.
        """
        bodies = sorted(read(source), key=apply_order)
        applied = []
        for body in bodies:
            mapping = self._discovery.find(body)
            target_namespace = self._namespace_of(mapping, body, namespace)
            name = metadata_of(body).get("name")
            if not isinstance(name, str) or self.find(mapping, name, target_namespace) is None:
                try:
                    applied.append(self._create(body, namespace))
                    continue
                except ApiError as error:
                    if error.code != 409:  # it was created meanwhile
                        raise
            path = mapping.path(target_namespace, name)
            applied.append(self.call("PATCH", path, body))
            self._wait_until_served(mapping, body)
        return applied

    def script(
        self, pod: str, namespace: str | None = None, *, container: str | None = None, logs: Iterable[str]
    ) -> None:
        """Append lines to the log of a pod's container, by default the first: the server runs no pods.

        Clients that follow the log get the lines at once. The log ends with the pod, and when its phase is
        `Succeeded` or `Failed`.

        Args:
            pod: The name of the pod.
            container: The container; by default, the first one.
            logs: The lines.
        """
        body = self.get("pods", pod, namespace)
        name = container if container is not None else body["spec"]["containers"][0]["name"]
        self._embedded.append_log(body["metadata"]["namespace"], pod, name, list(logs))

    def get(
        self, kind: str | Mapping[str, Any] | ResourceMapping, name: str, namespace: str | None = None
    ) -> Object:
        """The object; `ApiError` with the code 404 if there is none."""
        mapping = self._mapping(kind)
        return dict(self.call("GET", mapping.path(namespace or self.namespace, name)))

    def find(
        self, kind: str | Mapping[str, Any] | ResourceMapping, name: str, namespace: str | None = None
    ) -> Object | None:
        """The object, or None."""
        try:
            return self.get(kind, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    def list(
        self,
        kind: str | Mapping[str, Any] | ResourceMapping,
        namespace: str | None = None,
        *,
        labels: str = "",
    ) -> Objects:
        """The objects of the namespace; `*` for all namespaces.

        Args:
            labels: A label selector.
        """
        mapping = self._mapping(kind)
        target_namespace = None if namespace == "*" else namespace or self.namespace
        query = f"?labelSelector={urllib.parse.quote(labels)}" if labels else ""
        found = self.call("GET", mapping.path(target_namespace) + query)
        type_meta = {"apiVersion": mapping.api_version, "kind": mapping.kind}
        return [{**type_meta, **item} for item in found["items"]]

    def patch(
        self,
        kind: str | Mapping[str, Any] | ResourceMapping,
        name: str,
        patch: Mapping[str, Any],
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> Object:
        """Merge into the object; None removes.

        Args:
            patch: The changes; None removes.
            subresource: The subresource, such as `status`.
        """
        mapping = self._mapping(kind)
        return dict(self.call("PATCH", mapping.path(namespace or self.namespace, name, subresource), patch))

    def delete(
        self, kind: str | Mapping[str, Any] | ResourceMapping, name: str, namespace: str | None = None
    ) -> None:
        """Ask for the deletion; finalizers may hold it."""
        self.call("DELETE", self._mapping(kind).path(namespace or self.namespace, name))

    def events(self, about: str | None = None, namespace: str | None = None) -> Objects:
        """The Kubernetes events, maybe only those about the objects of that name; the oldest first.

        Args:
            about: The name of the objects; by default, events about all objects.
        """
        found = self.list("v1/events", namespace)
        found = [item for item in found if about is None or item["involvedObject"].get("name") == about]
        return sorted(found, key=lambda item: int(item["metadata"]["resourceVersion"]))

    def wait_for(
        self,
        kind: str | Mapping[str, Any] | ResourceMapping,
        name: str,
        condition: Condition | None = None,
        namespace: str | None = None,
        *,
        timeout: float = 30,
    ) -> Object:
        """Follow the object until the condition holds, and return it.

        The condition is a function of the object (None while there is none), or what the object must
        contain; by default, the object must only exist. After the timeout, it is a `TimeoutError` with the
        difference between the expected part and the last state.

        Args:
            condition: A function of the object, or of None, or what the object must contain; by default, it
                must exist.

        Raises:
            TimeoutError: The condition does not hold in time.
        """
        __tracebackhide__ = True
        predicate = as_function(condition)
        found = self._follow(
            kind, name, lambda item: item is not None and predicate(item), namespace, timeout, condition
        )
        return found if found is not None else {}

    def wait_until_gone(
        self,
        kind: str | Mapping[str, Any] | ResourceMapping,
        name: str,
        namespace: str | None = None,
        *,
        timeout: float = 30,
    ) -> None:
        """Follow the object until it does not exist."""
        __tracebackhide__ = True
        self._follow(kind, name, lambda item: item is None, namespace, timeout)

    def _follow(
        self,
        kind: str | Mapping[str, Any] | ResourceMapping,
        name: str,
        predicate: Callable[[Object | None], Any],
        namespace: str | None,
        timeout: float,
        condition: Condition | None = None,
    ) -> Object | None:
        __tracebackhide__ = True
        mapping = self._mapping(kind)
        deadline = time.monotonic() + timeout
        last: Object | None = None
        for last in self._watch_states(mapping, name, namespace or self.namespace, deadline):
            if predicate(last):
                return last
            self._check()
        text = f"{mapping.plural} {name!r}: the awaited state has not come in {timeout} seconds. "
        if isinstance(condition, Mapping):
            text += f"The difference:\n{describe_mismatch(condition, last)}\n"
        raise TimeoutError(f"{text}The last state:\n{dump_object(last)}")

    def _watch_states(
        self, mapping: ResourceMapping, name: str, namespace: str, deadline: float
    ) -> Iterator[Object | None]:
        """The states of an object as they come."""
        query = f"?fieldSelector={urllib.parse.quote('metadata.name=' + name)}"
        type_meta = {"apiVersion": mapping.api_version, "kind": mapping.kind}
        while True:
            page = self.call("GET", mapping.path(namespace) + query)
            yield {**type_meta, **page["items"][0]} if page["items"] else None
            version = page["metadata"]["resourceVersion"]
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return
            # A watch can be silent because it is broken: so we look again every second.
            watch = f"{query}&watch=true&resourceVersion={version}&timeoutSeconds={int(remaining) + 1}"
            is_silent = True
            try:
                for event in self._http.watch(mapping.path(namespace) + watch, min(1.0, remaining)):
                    if event["type"] == "ERROR":
                        break
                    is_silent = False
                    yield None if event["type"] == "DELETED" else event["object"]
                    if time.monotonic() > deadline:
                        return
            except ApiError:
                pass  # watches are rejected
            if is_silent:
                time.sleep(0.05)  # it may have been closed at once

    def _mapping(self, kind: str | Mapping[str, Any] | ResourceMapping) -> ResourceMapping:
        return kind if isinstance(kind, ResourceMapping) else self._discovery.find(kind)

    def _namespace_of(
        self, mapping: ResourceMapping, body: Mapping[str, Any], namespace: str | None
    ) -> str | None:
        explicit: str | None = metadata_of(body).get("namespace")
        return (namespace or explicit or self.namespace) if mapping.namespaced else None

    def _create(self, body: Mapping[str, Any], namespace: str | None) -> Object:
        mapping = self._discovery.find(body)
        target_namespace = self._namespace_of(mapping, body, namespace)
        created = dict(self.call("POST", mapping.path(target_namespace), body))
        self._created.append((mapping, target_namespace, created["metadata"]["name"]))
        self._wait_until_served(mapping, created)
        return created

    def _wait_until_served(self, mapping: ResourceMapping, body: Mapping[str, Any]) -> None:
        if mapping != CRDS:
            return
        name = body["metadata"]["name"]
        crd = self.wait_for(
            CRDS, name, lambda crd: is_established(crd) or _rejected_names(crd), timeout=SERVED_TIMEOUT
        )
        if not is_established(crd):
            raise ValueError(f"The names of the CRD {name!r} are not accepted: {_rejected_names(crd)}")
        deadline = time.monotonic() + SERVED_TIMEOUT
        for served in self._discovery.register(crd):
            while True:
                # An established CRD is not served at once by real servers.
                try:
                    self.call("GET", served.path(None))
                    break
                except ApiError as error:
                    if error.code not in (404, 429, 503) or time.monotonic() > deadline:
                        raise
                time.sleep(0.05)


def as_function(condition: Condition | None) -> Callable[[Object | None], Any]:
    """A function for any condition; without a condition, the object must exist."""
    if condition is None:
        return lambda _: True
    if isinstance(condition, Mapping):
        return functools.partial(contains, condition)
    return condition


def is_established(crd: Object | None) -> bool:
    """Whether the kinds of the CRD are served."""
    return any(item["type"] == "Established" and item["status"] == "True" for item in _conditions(crd))


def has_no_finalizers(namespace: Object) -> bool:
    """Whether it is known that the contents of a deleted namespace have no finalizers."""
    conditions = _conditions(namespace)
    return any(it["type"] == "NamespaceFinalizersRemaining" and it["status"] == "False" for it in conditions)


def _rejected_names(crd: Object | None) -> str | None:
    """Why the server rejects the names of a CRD, if it does."""
    for item in _conditions(crd):
        if item["type"] == "NamesAccepted" and item["status"] == "False":
            return item.get("message") or item.get("reason") or "they are in use"
    return None


def _conditions(crd: Object | None) -> Objects:
    return ((crd or {}).get("status") or {}).get("conditions") or []
