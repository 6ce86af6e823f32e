"""Servers and tunnels for admission webhooks."""

from kopf._kits.webhooks.servers import (
    WebhookAutoServer,
    WebhookDockerDesktopServer,
    WebhookK3dServer,
    WebhookMinikubeServer,
    WebhookServer,
)
from kopf._kits.webhooks.tunnels import MissingDependencyError, WebhookAutoTunnel, WebhookNgrokTunnel

__all__ = [
    "MissingDependencyError",
    "WebhookAutoServer",
    "WebhookAutoTunnel",
    "WebhookDockerDesktopServer",
    "WebhookK3dServer",
    "WebhookMinikubeServer",
    "WebhookNgrokTunnel",
    "WebhookServer",
]
