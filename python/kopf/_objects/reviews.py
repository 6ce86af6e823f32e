"""Types of admission reviews and of webhook servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol, TypedDict

from kopf._objects.typedefs import RawBody

Headers = dict[str, str]
"""The HTTP headers of a request to a webhook."""

SSLPeer = dict[str, Any]
"""The client certificate of a request to a webhook, as of `ssl.SSLSocket.getpeercert()`."""

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
"""An operation on an object that is reviewed."""


class UserInfo(TypedDict):
    """Who makes the request that is being reviewed."""

    username: str
    uid: str
    groups: list[str]


class WebhookClientConfigService(TypedDict, total=False):
    """A service in the cluster by which Kubernetes reaches a webhook."""

    namespace: str | None
    name: str | None
    path: str | None
    port: int | None


class WebhookClientConfig(TypedDict, total=False):
    """How Kubernetes reaches a webhook: by a URL or by a service; `caBundle` is base64 of PEM."""

    caBundle: str | None
    url: str | None
    service: WebhookClientConfigService | None


class RequestKind(TypedDict):
    """The kind of the object under review."""

    group: str
    version: str
    kind: str


class RequestResource(TypedDict):
    """The resource of the object under review."""

    group: str
    version: str
    resource: str


class RequestPayload(TypedDict, total=False):
    """The request under review: the user, the operation, and the object."""

    uid: str
    kind: RequestKind
    resource: RequestResource
    subResource: str | None
    requestKind: RequestKind
    requestResource: RequestResource
    requestSubResource: str | None
    userInfo: UserInfo
    name: str
    namespace: str | None
    operation: Operation
    options: Mapping[str, Any] | None
    dryRun: bool
    object: RawBody | None
    oldObject: RawBody | None


class Request(TypedDict, total=False):
    """A review as Kubernetes sends it."""

    apiVersion: str
    kind: str
    request: RequestPayload


class ResponseStatus(TypedDict, total=False):
    """The reason of a denial."""

    code: int
    message: str


class ResponsePayload(TypedDict, total=False):
    """The response to the request; the patch is base64 of JSON."""

    uid: str
    allowed: bool
    warnings: list[str]
    status: ResponseStatus
    patch: str
    patchType: Literal["JSONPatch"]


class Response(TypedDict, total=False):
    """A review as it is sent back to Kubernetes."""

    apiVersion: str
    kind: str
    response: ResponsePayload


class WebhookFn(Protocol):
    """The function of the framework for webhook servers: call it for each request, and return its result."""

    def __call__(
        self,
        request: Request,
        *,
        webhook: str | None = None,
        headers: Mapping[str, str] | None = None,
        sslpeer: Mapping[str, Any] | None = None,
    ) -> Awaitable[Response]: ...


WebhookServerProtocol = Callable[[WebhookFn], AsyncIterator[WebhookClientConfig]]
"""A webhook server or tunnel: it takes the function and yields client configs for as long as it serves."""
