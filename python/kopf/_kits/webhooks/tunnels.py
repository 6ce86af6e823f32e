"""Tunnels for admission webhooks: from the internet to a server in the operator's process."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator

from kopf._kits.webhooks.servers import ClusterDetector, PathT, WebhookServer, WebhookServerBase, as_path
from kopf._objects.reviews import WebhookClientConfig, WebhookFn

LOOPBACK = "127.0.0.1"


class MissingDependencyError(ImportError):
    """The library of a tunnel is not installed."""


class WebhookNgrokTunnel(WebhookServerBase):
    """A tunnel from the internet by ngrok, with a server behind it.

    The server listens without encryption: on the loopback interface, unless `addr` is another address.

    Args:
        addr: The address to listen at; None: the loopback interface.
        port: The port to listen at; None: a random one.
        path: The path of the URL.
        token: The token of ngrok; None: that of its configuration.
        region: The region of ngrok.
        binary: The path of the program; None: that of the library.
    """

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

    async def _serve(self, fn: WebhookFn) -> AsyncGenerator[WebhookClientConfig, None]:
        try:
            from pyngrok import conf, ngrok  # type: ignore[import-not-found, unused-ignore]
        except ImportError as e:
            raise MissingDependencyError(
                "Using ngrok webhook tunnel requires an extra dependency: "
                "run `pip install pyngrok` or add it to the operator's dependencies."
            ) from e
        # The defaults of the process, as in Kopf 1.45.
        options = {"auth_token": self.token, "region": self.region, "ngrok_path": as_path(self.binary)}
        for name, value in options.items():
            if value is not None:
                setattr(conf.get_default(), name, value)
        loop = asyncio.get_running_loop()
        # Only the tunnel connects to a server without encryption, unless another address is given.
        server = WebhookServer(addr=self.addr or LOOPBACK, port=self.port, path=self.path, insecure=True)
        async with server:
            async for local in server(fn):
                url = local["url"] or ""
                origin = url.removesuffix(self.path or "")
                connect = functools.partial(ngrok.connect, origin)
                tunnel = await loop.run_in_executor(None, connect)
                try:
                    yield WebhookClientConfig(url=f"{tunnel.public_url}{self.path or ''}")
                    await asyncio.Event().wait()
                finally:
                    leave = functools.partial(ngrok.disconnect, tunnel.public_url)
                    await loop.run_in_executor(None, leave)


class WebhookAutoTunnel(ClusterDetector, WebhookServerBase):
    """A server for a cluster on the same machine, if it is recognised; else a tunnel.

    Args:
        addr: The address to listen at; None: by the server or tunnel.
        port: The port to listen at; None: a random one.
        path: The path of the URL.
    """

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

    async def _serve(self, fn: WebhookFn) -> AsyncGenerator[WebhookClientConfig, None]:
        host = await self._detect(fn, "using an ngrok tunnel")
        server: WebhookServer | WebhookNgrokTunnel
        if host is None:
            server = WebhookNgrokTunnel(addr=self.addr, port=self.port, path=self.path)
        else:
            server = WebhookServer(addr=self.addr, port=self.port, path=self.path, host=host)
        async with server:
            async for config in server(fn):
                yield config
