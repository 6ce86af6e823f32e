"""The verbs: their requests, and the conversion of the responses. Nothing here waits."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from kopf._objects import client_models
from kopf._objects.bodies import Body
from kopf._objects.resources import Resource, make_resource
from kopf._runtime.bridge import ApiRequest, ApiResponse

T = TypeVar("T")

Kind = str | tuple[str, ...] | Resource | Mapping[str, Any]
"""A name as in selectors, `group/version/plural`, a tuple of these or of `apiVersion` and `kind`, a resource,
or an object of the kind.
"""
Since = datetime.datetime | datetime.timedelta | float | None
"""The time of the first line of a log, or its age, as a number in seconds."""
Selector = str | Mapping[str, str]
"""A label or field selector as in Kubernetes, or the required values by the labels or fields."""

PODS = "v1/pods"


class Operation(NamedTuple, Generic[T]):
    """A request, and the conversion of its response."""

    request: ApiRequest
    convert: Callable[[Any], T]


class Answer(NamedTuple):
    """The response to any request."""

    status: int
    """The HTTP status."""
    headers: Mapping[str, str]
    """The headers, with names in lower case."""
    bytes: bytes
    """The body."""

    @property
    def json(self) -> Any:
        """The decoded body."""
        import json

        return json.loads(self.bytes)


Answer.__module__ = "kopf.client"


def kind_name(kind: Kind) -> str:
    """The name of the kind for the engine."""
    if isinstance(kind, str):
        return kind
    if isinstance(kind, Resource):
        return f"{kind.group}/{kind.version}/{kind.plural}"
    if isinstance(kind, Mapping):
        return f"{kind['apiVersion']}/{kind['kind']}"
    if isinstance(kind, tuple) and len(kind) in (2, 3):
        return "/".join(kind)
    raise TypeError(f"This is not a kind: {kind!r}. Pass a name such as 'pods' or 'apps/v1/deployments'.")


def plain_body(body: Any) -> dict[str, Any]:
    """The body as a dict, which may share values with the given one."""
    if client_models.is_pykube_object(body):
        body = body.obj
    elif client_models.is_model(body):
        body = _model_to_dict(body)
    if not isinstance(body, Mapping):
        raise TypeError(f"An object must be a mapping, not {type(body).__name__}.")
    plain = dict(body)
    for field in ("apiVersion", "kind"):
        if not isinstance(plain.get(field), str):
            raise ValueError(f"The object has no {field}, so its kind is not known.")
    return plain


def _model_to_dict(model: Any) -> Any:
    if hasattr(model, "to_dict") and hasattr(type(model), "attribute_map"):
        values = {name: getattr(model, name) for name in type(model).attribute_map}
        names = type(model).attribute_map
        return {names[name]: _model_to_dict(value) for name, value in values.items() if value is not None}
    if isinstance(model, list):
        return [_model_to_dict(item) for item in model]
    if isinstance(model, dict):
        return {key: _model_to_dict(value) for key, value in model.items()}
    return model.isoformat() if hasattr(model, "isoformat") else model


def selector_text(selector: Selector | None) -> str | None:
    """The selector as a text."""
    if selector is None or isinstance(selector, str):
        return selector
    return ",".join(f"{key}={value}" for key, value in selector.items())


def selection(labels: Selector | None, fields: Selector | None) -> list[tuple[str, str]]:
    """The parameters of the selectors."""
    texts = (("labelSelector", selector_text(labels)), ("fieldSelector", selector_text(fields)))
    return [(name, text) for name, text in texts if text]


def to_body(response: ApiResponse) -> Body:
    """The object of a response."""
    return Body(typed(response.json(), response))


def typed(body: dict[str, Any], response: ApiResponse) -> dict[str, Any]:
    """The object with its own kind, instead of none or that of partial objects."""
    if response.type_meta is not None and body.get("kind") in (None, "PartialObjectMetadata"):
        return {**body, "apiVersion": response.type_meta[0], "kind": response.type_meta[1]}
    return body


def get(
    kind: Kind, name: str, namespace: str | None, subresource: str | None, metadata_only: bool
) -> Operation[Body]:
    """Read an object."""
    request = ApiRequest(
        "get", kind_name(kind), name, namespace, subresource=subresource, metadata_only=metadata_only
    )
    return Operation(request, to_body)


def list_page(
    kind: Kind, namespace: str | None, query: list[tuple[str, str]], metadata_only: bool
) -> Operation[Page]:
    """Read one page of a list."""
    request = ApiRequest(
        "list", kind_name(kind), namespace=namespace, query=query, metadata_only=metadata_only
    )
    return Operation(request, _to_page)


class Page(NamedTuple):
    """One page of a list."""

    items: list[Body]
    version: str
    token: str


def _to_page(response: ApiResponse) -> Page:
    document = response.json()
    metadata = document.get("metadata") or {}
    items = [Body(typed(item, response)) for item in document.get("items") or ()]
    return Page(items, metadata.get("resourceVersion") or "", metadata.get("continue") or "")


def create(body: Any, namespace: str | None) -> Operation[Body]:
    """Create an object."""
    plain = plain_body(body)
    metadata = plain.get("metadata") or {}
    request = ApiRequest(
        "create",
        kind_name(plain),
        metadata.get("name"),
        namespace,
        body=plain,
        body_namespace=metadata.get("namespace"),
    )
    return Operation(request, to_body)


def replace(body: Any, namespace: str | None, subresource: str | None) -> Operation[Body]:
    """Replace an object."""
    plain = plain_body(body)
    metadata = plain.get("metadata") or {}
    request = ApiRequest(
        "replace",
        kind_name(plain),
        metadata.get("name"),
        namespace,
        body=plain,
        body_namespace=metadata.get("namespace"),
        subresource=subresource,
        guarded=bool(metadata.get("resourceVersion")),
    )
    return Operation(request, to_body)


def apply(body: Any, namespace: str | None, subresource: str | None, force: bool) -> Operation[Body]:
    """Apply an object."""
    plain = plain_body(body)
    # Objects as read from the server have it, but it is not accepted.
    metadata = {key: value for key, value in (plain.get("metadata") or {}).items() if key != "managedFields"}
    plain["metadata"] = metadata
    request = ApiRequest(
        "apply",
        kind_name(plain),
        metadata.get("name"),
        namespace,
        body=plain,
        body_namespace=metadata.get("namespace"),
        subresource=subresource,
        query=[("force", "true")] if force else [],
    )
    return Operation(request, to_body)


def patch(
    kind: Kind,
    name: str,
    patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    namespace: str | None,
    subresource: str | None,
    version: str | None,
    strategic: bool,
) -> Operation[Body]:
    """Patch an object: merge a mapping, or execute a list of operations."""
    document: Any
    if isinstance(patch, Mapping):
        verb = "strategic-patch" if strategic else "merge-patch"
        document = dict(patch)
        if version is not None:
            document["metadata"] = {**(document.get("metadata") or {}), "resourceVersion": version}
        guarded = bool((document.get("metadata") or {}).get("resourceVersion"))
    elif strategic:
        raise ValueError("A strategic merge patch is a mapping, not a list.")
    else:
        verb = "json-patch"
        document = [dict(operation) for operation in patch]
        if version is not None:
            document.insert(0, test_version(version))
        guarded = any(operation.get("op") == "test" for operation in document)
    request = ApiRequest(
        verb, kind_name(kind), name, namespace, body=document, subresource=subresource, guarded=guarded
    )
    return Operation(request, to_body)


def test_version(version: str) -> dict[str, str]:
    """The operation of a JSON patch that compares the resource version."""
    return {"op": "test", "path": "/metadata/resourceVersion", "value": version}


def delete(
    kind: Kind,
    name: str,
    namespace: str | None,
    propagation: str | None,
    grace: float | None,
    uid: str | None,
    version: str | None,
) -> Operation[Body | None]:
    """Delete an object."""
    options = _deletion(propagation, grace, uid, version)
    request = ApiRequest(
        "delete",
        kind_name(kind),
        name,
        namespace,
        body=options or None,
        guarded=uid is not None or version is not None,
    )
    return Operation(request, _to_rest)


def _to_rest(response: ApiResponse) -> Body | None:
    """The object, if it still exists: then it is marked as being deleted."""
    if response.status == 404:
        return None
    body = response.json()
    metadata = body.get("metadata") or {}
    return Body(typed(body, response)) if metadata.get("deletionTimestamp") else None


def _deletion(
    propagation: str | None, grace: float | None, uid: str | None = None, version: str | None = None
) -> dict[str, Any]:
    policies = {"background": "Background", "foreground": "Foreground", "orphan": "Orphan"}
    if propagation is not None and propagation not in policies:
        raise ValueError(f"propagation must be one of {', '.join(policies)}, not {propagation!r}.")
    preconditions = {"uid": uid, "resourceVersion": version}
    preconditions = {key: value for key, value in preconditions.items() if value is not None}
    values = {
        "propagationPolicy": policies[propagation] if propagation is not None else None,
        "gracePeriodSeconds": grace,
        "preconditions": preconditions or None,
    }
    options = {key: value for key, value in values.items() if value is not None}
    return {"apiVersion": "v1", "kind": "DeleteOptions", **options} if options else {}


def delete_all(
    kind: Kind, namespace: str | None, query: list[tuple[str, str]], propagation: str | None
) -> Operation[None]:
    """Delete all selected objects of a namespace."""
    request = ApiRequest(
        "delete_all",
        kind_name(kind),
        namespace=namespace,
        query=query,
        body=_deletion(propagation, None) or None,
    )
    return Operation(request, lambda _: None)


def scale(kind: Kind, name: str, replicas: int | None, namespace: str | None) -> Operation[int]:
    """Read the desired number of replicas, or set it."""
    if replicas is None:
        request = ApiRequest("get", kind_name(kind), name, namespace, subresource="scale")
    else:
        body = {"spec": {"replicas": replicas}}
        request = ApiRequest("merge-patch", kind_name(kind), name, namespace, body=body, subresource="scale")
    return Operation(request, lambda response: (response.json().get("spec") or {}).get("replicas") or 0)


def evict(
    name: str, namespace: str | None, uid: str | None, grace: float | None, dry_run: bool
) -> Operation[None]:
    """Evict a pod."""
    options = _deletion(None, grace, uid)
    if dry_run:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", **options, "dryRun": ["All"]}
    eviction: dict[str, Any] = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    if options:
        eviction["deleteOptions"] = options
    request = ApiRequest(
        "create", PODS, name, namespace, body=eviction, subresource="eviction", guarded=uid is not None
    )
    return Operation(request, lambda _: None)


def watch(
    kind: Kind,
    namespace: str | None,
    query: Sequence[tuple[str, str]] = (),
    metadata_only: bool = False,
    name: str | None = None,
) -> ApiRequest:
    """Follow the changes of objects; of one object if it is named."""
    selected = list(query) if name is None else [*query, ("fieldSelector", f"metadata.name={name}")]
    return ApiRequest(
        "watch", kind_name(kind), namespace=namespace, query=selected, metadata_only=metadata_only
    )


def logs(
    name: str,
    namespace: str | None,
    container: str | None,
    follow: bool,
    since: Since,
    tail: int | None,
    previous: bool,
) -> ApiRequest:
    """Read the log of a container."""
    query = [("container", container)] if container is not None else []
    query += [(key, "true") for key, value in (("follow", follow), ("previous", previous)) if value]
    if tail is not None:
        query.append(("tailLines", str(tail)))
    if isinstance(since, datetime.datetime):
        if since.tzinfo is None:
            raise ValueError(f"The time needs a time zone: since={since!r}.")
        query.append(("sinceTime", since.isoformat()))
    elif since is not None:
        seconds = since.total_seconds() if isinstance(since, datetime.timedelta) else since
        query.append(("sinceSeconds", str(math.ceil(seconds))))
    return ApiRequest("logs", PODS, name, namespace, subresource="log", query=query)


def raw(
    method: str,
    path: str,
    body: Any,
    params: Mapping[str, str] | None,
    content_type: str | None,
    accept: str | None,
) -> Operation[Answer]:
    """Any request."""
    if params:
        import urllib.parse

        path += ("&" if "?" in path else "?") + urllib.parse.urlencode(params)
    request = ApiRequest.raw(method, path, body=body, content_type=content_type, accept=accept)
    return Operation(request, lambda response: Answer(response.status, response.headers, response.content))


def discover(kind: Kind) -> Operation[Resource]:
    """The resource of a kind."""
    return Operation(ApiRequest.resolve(kind_name(kind)), lambda found: make_resource(found[0]))


def resources() -> Operation[list[Resource]]:
    """All resources."""
    return Operation(ApiRequest.resources(), lambda found: [make_resource(fields) for fields in found])


def allowed(
    verb: str, kind: Kind, name: str | None, namespace: str | None, subresource: str | None
) -> Operation[bool]:
    """Whether the user may do this."""
    request = ApiRequest.access(verb, kind_name(kind), name, namespace, subresource=subresource)
    return Operation(request, bool)


def server_version() -> Operation[dict[str, Any]]:
    """The version of the server."""
    return Operation(ApiRequest.raw("GET", "/version"), lambda response: dict(response.json()))
