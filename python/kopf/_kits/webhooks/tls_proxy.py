"""TLS proxy for webhook servers with an `SSLContext` of the user; the engine's server gets the decrypted
bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import pathlib
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Self

from kopf._kits.webhooks.memory_files import MemoryFiles
from kopf._runtime import bridge

logger = logging.getLogger("kopf._kits.webhooks")

CHUNK_SIZE = 64 * 1024
MAX_HANDSHAKES = 50
"""How many clients may be in their TLS handshakes. Beyond that, others wait for `HANDSHAKE_GRACE`."""
HANDSHAKE_GRACE = 5.0
"""Seconds for a handshake while other clients wait. Then, the one that began first is dropped.

API servers send bursts of reviews, each over a separate connection, and handshakes take long on busy
machines.
"""
HANDSHAKE_TIMEOUT = 10.0
ACCEPT_RETRY_DELAY = 0.1
"""Seconds until the next attempt when the system gives no more connections."""
BACKLOG = 1024
"""How many clients may wait to be accepted. The system delays the connections of others by a second."""


class TlsProxy:
    """Accepts TLS connections, and passes the decrypted bytes to a server without TLS."""

    def __init__(
        self,
        server: bridge.WebhookServer,
        context: ssl.SSLContext,
        *,
        addr: str | None,
        port: int,
        sources: Mapping[str, Any],
        verify_mode: ssl.VerifyMode | None,
        build_certificate: Callable[[list[str], str | None], tuple[bytes, bytes]],
    ) -> None:
        super().__init__()
        self._server = server
        self._context = context
        self._addr = addr
        self._sources = sources
        self._verify_mode = verify_mode
        self._build_certificate = build_certificate
        self._authority = b""
        self._fingerprint = b""
        self._tasks: set[asyncio.Task[None]] = set()
        self._handshakes: dict[asyncio.Task[None], float] = {}
        """When each of them began, by the clock of the event loop; the first one first."""
        self._is_handshake_over = asyncio.Event()
        self.port = port

    async def __aenter__(self) -> Self:
        self._fingerprint = self._compute_fingerprint()
        self._load()
        self._verify()
        listener = _listen(self._addr, self.port)
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        self._track(asyncio.create_task(self._accept(listener)))
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def ca_bundle(self) -> bytes:
        """The certificates in PEM that clients are to trust."""
        return self._authority

    def reload(self) -> bool:
        """Read the files again; whether they have changed and are used now.

        Authorities of clients are only added: a context does not forget any.
        """
        fingerprint = self._compute_fingerprint()
        if fingerprint == self._fingerprint:
            return False
        if self._has_files():  # generated certificates stay in use
            self._load()
        self._verify()
        self._fingerprint = fingerprint
        return True

    def _has_files(self) -> bool:
        return bool(self._sources["certfile"] and self._sources["pkeyfile"])

    def _load(self) -> None:
        sources = self._sources
        if self._has_files():
            certfile, pkeyfile = sources["certfile"], sources["pkeyfile"]
            # A certificate without its key would replace the one in use, and then no client could connect.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certfile, pkeyfile, sources["password"])
            self._context.load_cert_chain(certfile, pkeyfile, sources["password"])
            self._server.report_certificate(pathlib.Path(certfile).read_bytes())
            self._authority = sources["cadata"] or pathlib.Path(sources["cafile"] or certfile).read_bytes()
            return
        certificate, key = self._build_certificate(sources["hostnames"], sources["password"])
        with MemoryFiles() as files:  # there is no other way into a context
            files.write({"tls.pem": certificate + b"\n" + key})
            self._context.load_cert_chain(files.path("tls.pem"), password=sources["password"])
        self._server.report_certificate(certificate)
        self._authority = certificate

    def _verify(self) -> None:
        sources = self._sources
        cafile, capath = sources["verify_cafile"], sources["verify_capath"]
        cadata = sources["verify_cadata"]
        if self._verify_mode is not None:
            self._context.verify_mode = self._verify_mode
        if cafile or capath or cadata:
            is_pem = isinstance(cadata, bytes) and cadata.lstrip().startswith(b"-----BEGIN")
            self._context.load_verify_locations(cafile, capath, cadata.decode() if is_pem else cadata)
            if self._context.verify_mode == ssl.CERT_NONE:
                self._context.verify_mode = ssl.CERT_OPTIONAL

    def _compute_fingerprint(self) -> bytes:
        names = ("certfile", "pkeyfile", "cafile", "verify_cafile")
        paths = [self._sources[name] for name in names if self._sources[name]]
        return hashlib.sha256(b"".join(pathlib.Path(path).read_bytes() for path in paths)).digest()

    def _track(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        is_exhausted = False
        with listener:
            while True:
                try:
                    client, _ = await loop.sock_accept(listener)
                    is_exhausted = False
                except ConnectionAbortedError:  # by the client
                    continue
                except OSError as e:
                    if not is_exhausted:
                        logger.error(f"The webhook server cannot accept connections for now: {e}")
                    is_exhausted = True
                    await asyncio.sleep(ACCEPT_RETRY_DELAY)
                    continue
                try:
                    await self._make_room()
                except BaseException:
                    client.close()
                    raise
                task = loop.create_task(self._serve(client))
                self._handshakes[task] = loop.time()
                self._track(task)

    async def _make_room(self) -> None:
        """Wait until another client can begin its handshake."""
        loop = asyncio.get_running_loop()
        while len(self._handshakes) >= MAX_HANDSHAKES:
            oldest, began = next(iter(self._handshakes.items()))
            remaining = began + HANDSHAKE_GRACE - loop.time()
            if remaining <= 0:
                self._end_handshake(oldest)
                oldest.cancel()
                return
            self._is_handshake_over.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_handshake_over.wait(), remaining)

    def _end_handshake(self, task: asyncio.Task[None] | None) -> None:
        if task is not None:
            self._handshakes.pop(task, None)
            self._is_handshake_over.set()

    # Handshakes fail of clients that are none of ours: port scanners, load balancers, clients without trust.
    async def _serve(self, client: socket.socket) -> None:
        task = asyncio.current_task()
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await self._decrypt(client)
                with contextlib.closing(writer):
                    self._end_handshake(task)
                    await self._forward(reader, writer)
        finally:
            self._end_handshake(task)

    async def _decrypt(self, client: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            client,
            ssl=self._context,
            ssl_handshake_timeout=HANDSHAKE_TIMEOUT,
        )
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    # The engine's server limits these connections: it closes the one that is silent for the longest time.
    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_socket = socket.socket(fileno=self._server.connect(writer.get_extra_info("peercert") or None))
        inner_reader, inner_writer = await asyncio.open_connection(sock=inner_socket)
        with contextlib.closing(inner_writer):
            requests = asyncio.create_task(_pump(reader, inner_writer))
            try:
                await _pump(inner_reader, writer)
            finally:
                requests.cancel()
                await asyncio.wait([requests])


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK_SIZE):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        else:
            writer.close()


def _listen(addr: str | None, port: int) -> socket.socket:
    if addr:
        family, _, _, _, address = socket.getaddrinfo(addr, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    if socket.has_dualstack_ipv6():
        family = socket.AF_INET6
        return socket.create_server(("", port), family=family, backlog=BACKLOG, dualstack_ipv6=True)
    return socket.create_server(("", port), backlog=BACKLOG)
