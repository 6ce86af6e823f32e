"""TLS handshakes of webhook servers with a context: bursts of connections, and clients that send nothing."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import kopf
import pytest
from kopf._kits.webhooks import tls_proxy

pytest.importorskip("kopf._kopf", reason="the native module is not built")

LIMIT = 120.0


async def respond(request: Any, **_: Any) -> Any:
    return {"request": request}


def serve(client: Callable[[int, ssl.SSLContext], Awaitable[None]]) -> None:
    async def main() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        async with kopf.WebhookServer(addr="127.0.0.1", context=context) as server:
            async for config in server(respond):
                bundle = base64.b64decode(config["caBundle"] or "").decode()
                port = int((config["url"] or "").rpartition(":")[2])
                await client(port, ssl.create_default_context(cadata=bundle))
                return

    asyncio.run(asyncio.wait_for(main(), LIMIT))


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Send a review; the status of the response."""
    writer.write(b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
    line = await reader.readline()
    writer.close()
    return line.split(b" ", 2)[1]


def test_a_burst_of_clients_waits_for_the_handshakes_of_those_before(monkeypatch):
    monkeypatch.setattr(tls_proxy, "MAX_HANDSHAKES", 2)
    monkeypatch.setattr(tls_proxy, "HANDSHAKE_GRACE", LIMIT)
    monkeypatch.setattr(tls_proxy, "HANDSHAKE_TIMEOUT", LIMIT)

    async def client(port: int, trusting: ssl.SSLContext) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        # The first two are in their handshakes, in which they need as long as they like. The others wait.
        statuses = [exchange(*await encrypt(pair, trusting)) for pair in silent[:2]]
        assert await asyncio.gather(*statuses) == [b"200", b"200"]
        for pair in silent[2:]:
            assert await exchange(*await encrypt(pair, trusting)) == b"200"

    async def encrypt(pair: Any, trusting: ssl.SSLContext) -> Any:
        reader, writer = pair
        await writer.start_tls(trusting, server_hostname="127.0.0.1")
        return reader, writer

    serve(client)


def test_clients_that_send_nothing_are_dropped_if_others_wait_for_longer_than_the_grace_period(monkeypatch):
    monkeypatch.setattr(tls_proxy, "MAX_HANDSHAKES", 2)
    monkeypatch.setattr(tls_proxy, "HANDSHAKE_GRACE", 0.1)
    monkeypatch.setattr(tls_proxy, "HANDSHAKE_TIMEOUT", LIMIT)

    async def client(port: int, trusting: ssl.SSLContext) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        last = await asyncio.open_connection(
            "127.0.0.1", port, ssl=trusting, ssl_handshake_timeout=LIMIT, server_hostname="127.0.0.1"
        )
        assert await exchange(*last) == b"200"
        with contextlib.suppress(ConnectionResetError):
            assert await silent[0][0].read() == b""
        for _, writer in silent:
            writer.close()

    serve(client)
