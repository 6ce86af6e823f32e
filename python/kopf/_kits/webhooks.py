"""Servers and tunnels for admission webhooks. It owns their options; serving itself is not supported yet."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Iterable
from typing import ClassVar

from kopf._objects.reviews import WebhookClientConfig, WebhookFn

PathT = str | os.PathLike[str]

_NOT_YET = "Admission webhooks are not supported yet."


class WebhookServer:
    """An HTTP(S) server in the operator's process; with no certificate given, a self-signed one.

    `addr` and `port` are where to listen (by default, everywhere, on a random port), `host` and `path` are
    what Kubernetes is told. `file_check_interval` is how often the files are checked for changes (seconds).
    """

    DEFAULT_HOST: ClassVar[str | None] = None

    def __init__(
        self,
        *,
        addr: str | None = None,
        port: int | None = None,
        path: str | None = None,
        host: str | None = None,
        cadata: bytes | None = None,
        cafile: PathT | None = None,
        cadump: PathT | None = None,
        context: ssl.SSLContext | None = None,
        insecure: bool = False,
        certfile: PathT | None = None,
        pkeyfile: PathT | None = None,
        password: str | None = None,
        extra_sans: Iterable[str] = (),
        verify_mode: ssl.VerifyMode | None = None,
        verify_cafile: PathT | None = None,
        verify_capath: PathT | None = None,
        verify_cadata: str | bytes | None = None,
        file_check_interval: float = 60.0,
    ) -> None:
        super().__init__()
        self.addr = addr
        self.port = port
        self.path = path
        self.host = host
        self.cadata = cadata
        self.cafile = cafile
        self.cadump = cadump
        self.context = context
        self.insecure = insecure
        self.certfile = certfile
        self.pkeyfile = pkeyfile
        self.password = password
        self.extra_sans = extra_sans
        self.verify_mode = verify_mode
        self.verify_cafile = verify_cafile
        self.verify_capath = verify_capath
        self.verify_cadata = verify_cadata
        self.file_check_interval = file_check_interval

    def __call__(self, fn: WebhookFn, /) -> AsyncIterator[WebhookClientConfig]:
        """Serve the requests by the function."""
        raise NotImplementedError(_NOT_YET)


class WebhookK3dServer(WebhookServer):
    """A server for clusters of K3d/K3s on the same machine."""

    DEFAULT_HOST = "host.k3d.internal"


class WebhookMinikubeServer(WebhookServer):
    """A server for clusters of Minikube on the same machine."""

    DEFAULT_HOST = "host.minikube.internal"


class WebhookDockerDesktopServer(WebhookServer):
    """A server for clusters of Docker Desktop on the same machine."""

    DEFAULT_HOST = "host.docker.internal"


class WebhookAutoServer(WebhookServer):
    """A server for whatever cluster is recognised on the same machine."""


class WebhookNgrokTunnel:
    """A tunnel from the internet by ngrok, with a server behind it."""

    def __init__(
        self,
        *,
        addr: str | None = None,
        port: int | None = None,
        path: str | None = None,
        token: str | None = None,
        region: str | None = None,
        binary: PathT | None = None,
    ) -> None:
        super().__init__()
        self.addr = addr
        self.port = port
        self.path = path
        self.token = token
        self.region = region
        self.binary = binary

    def __call__(self, fn: WebhookFn, /) -> AsyncIterator[WebhookClientConfig]:
        """Serve the requests by the function."""
        raise NotImplementedError(_NOT_YET)


class WebhookAutoTunnel:
    """A server for a cluster on the same machine, if it is recognised; else a tunnel."""

    def __init__(
        self,
        *,
        addr: str | None = None,
        port: int | None = None,
        path: str | None = None,
    ) -> None:
        super().__init__()
        self.addr = addr
        self.port = port
        self.path = path

    def __call__(self, fn: WebhookFn, /) -> AsyncIterator[WebhookClientConfig]:
        """Serve the requests by the function."""
        raise NotImplementedError(_NOT_YET)
