"""Types of admission reviews and of webhook servers. It owns shapes only and must not know any server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol, TypedDict

Headers = dict[str, str]
SSLPeer = dict[str, Any]
Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


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


class Request(TypedDict, total=False):
    """A review as Kubernetes sends it."""

    apiVersion: str
    kind: str
    request: Mapping[str, Any]


class Response(TypedDict, total=False):
    """A review as it is sent back to Kubernetes."""

    apiVersion: str
    kind: str
    response: Mapping[str, Any]


class WebhookFn(Protocol):
    """The function that the framework gives to a webhook server: call it for each request, send its result
    back.
    """

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
