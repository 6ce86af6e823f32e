"""Authorities of webhook servers: those of clients, and those for Kubernetes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from typing import Any

import kopf
import pytest

pytest.importorskip("kopf._kopf", reason="the native module is not built")

LIMIT = 60.0


async def respond(request: Any, **_: Any) -> Any:
    return {"request": request}


async def is_accepted(config: Any, certificate: Any) -> bool:
    """Whether the server accepts a client with this certificate."""
    trusting = ssl.create_default_context(cadata=base64.b64decode(config["caBundle"]).decode())
    trusting.load_cert_chain(*certificate)
    port = int(config["url"].rpartition(":")[2])
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=trusting, server_hostname="127.0.0.1"
        )
        with contextlib.closing(writer):
            writer.write(b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
            return b" 200 " in await reader.readline()
    return False


@pytest.fixture
def clients(tmp_path):
    """Two certificates of clients, which are their own authorities, with their keys."""
    found = []
    for name in ("before", "after"):
        certificate, key = kopf.WebhookServer.build_certificate([name])
        pair = tmp_path / f"{name}.pem", tmp_path / f"{name}-key.pem"
        pair[0].write_bytes(certificate)
        pair[1].write_bytes(key)
        found.append(pair)
    return found


@pytest.mark.parametrize("has_files", [False, True])
@pytest.mark.parametrize("has_context", [False, True])
def test_changed_authorities_of_clients_are_taken_up(clients, tmp_path, has_context, has_files):
    before, after = clients
    verified = tmp_path / "clients.pem"
    verified.write_bytes(before[0].read_bytes())
    files = {}
    if has_files:
        certificate, key = kopf.WebhookServer.build_certificate(["127.0.0.1"])
        files = {"certfile": tmp_path / "cert.pem", "pkeyfile": tmp_path / "key.pem"}
        files["certfile"].write_bytes(certificate)
        files["pkeyfile"].write_bytes(key)
    server = kopf.WebhookServer(
        addr="127.0.0.1",
        verify_mode=ssl.CERT_REQUIRED,
        verify_cafile=verified,
        file_check_interval=0.02,
        context=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if has_context else None,
        **files,
    )

    async def main() -> None:
        async with server:
            configs = aiter(server(respond))
            config = await anext(configs)
            assert await is_accepted(config, before)
            assert not await is_accepted(config, after)
            verified.write_bytes(after[0].read_bytes())
            again = await anext(configs)
            assert again["caBundle"] == config["caBundle"], "the certificate of the server is the same"
            assert await is_accepted(again, after)
            # Contexts of OpenSSL forget no authorities.
            assert await is_accepted(again, before) is has_context

    asyncio.run(asyncio.wait_for(main(), LIMIT))


def test_two_generated_certificates_of_one_name_can_be_trusted_together(tmp_path):
    pairs = [kopf.WebhookServer.build_certificate(["localhost"]) for _ in range(2)]
    trusting = ssl.create_default_context(cadata="".join(certificate.decode() for certificate, _ in pairs))
    trusting.verify_flags &= ~ssl.VERIFY_X509_PARTIAL_CHAIN  # with it, they are compared as a whole
    for certificate, key in pairs:
        (tmp_path / "pair.pem").write_bytes(certificate + key)
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(tmp_path / "pair.pem")
        to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = serving.wrap_bio(to_server, to_client, server_side=True)
        client = trusting.wrap_bio(to_client, to_server, server_hostname="localhost")
        for side in (client, server, client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
        assert client.getpeercert()


def test_the_authority_of_a_proxy_is_published_for_a_server_without_encryption(tmp_path):
    """As with Kopf 1.45: Kubernetes connects to the proxy."""
    (tmp_path / "ca.pem").write_bytes(b"from file")

    async def main(**options: Any) -> Any:
        async with kopf.WebhookServer(addr="127.0.0.1", insecure=True, **options) as server:
            return await anext(aiter(server(respond)))

    def published(**options: Any) -> bytes | None:
        config = asyncio.run(asyncio.wait_for(main(**options), LIMIT))
        assert config["url"].startswith("http://")
        return base64.b64decode(config["caBundle"]) if "caBundle" in config else None

    assert published() is None
    assert published(cafile=tmp_path / "ca.pem") == b"from file"
    assert published(cafile=tmp_path / "ca.pem", cadata=b"data", cadump=tmp_path / "dump") == b"data"
    assert (tmp_path / "dump").read_bytes() == b"data"
