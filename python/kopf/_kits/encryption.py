"""Webhook servers behind the user's own SSL contexts, which only Python's sockets understand. It owns the way
of the decrypted bytes to the engine's server and back; it must not know what they say.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import pathlib
import socket
import ssl
import tempfile
from collections.abc import Mapping
from typing import Any, Self

from kopf._runtime import bridge

CHUNK = 64 * 1024
MODES = {"none": None, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class Encryption:
    """Accepts connections, and gives them to a server that has no encryption of its own."""

    def __init__(
        self,
        server: bridge.WebhookServer,
        context: ssl.SSLContext,
        *,
        addr: str | None,
        port: int,
        sources: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self._server = server
        self._context = context
        self._addr = addr
        self._sources = sources
        self._authority = b""
        self._mark = b""
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self.port = port

    async def __aenter__(self) -> Self:
        self._mark = self._read_mark()
        self._load()
        self._verify()
        sock = _listen(self._addr, self.port)
        self.port = sock.getsockname()[1]
        self._listener = await asyncio.start_server(self._accept, sock=sock, ssl=self._context)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listener is not None:
            self._listener.close()
        for task in self._tasks:
            task.cancel()

    def authority(self) -> bytes:
        """The certificates in PEM that clients are to trust."""
        return self._authority

    def reload(self) -> bool:
        """Read the files again; whether they have changed and are used now."""
        mark = self._read_mark()
        if mark == self._mark or not self._has_files():
            return False
        self._load()
        self._mark = mark
        return True

    def _has_files(self) -> bool:
        return bool(self._sources["certfile"] and self._sources["pkeyfile"])

    def _load(self) -> None:
        sources = self._sources
        if self._has_files():
            certfile, pkeyfile = sources["certfile"], sources["pkeyfile"]
            self._context.load_cert_chain(certfile, pkeyfile, sources["password"])
            self._authority = sources["cadata"] or pathlib.Path(sources["cafile"] or certfile).read_bytes()
            return
        certificate, key = bridge.build_certificate(sources["hostnames"], None)
        with tempfile.NamedTemporaryFile() as file:  # 0600; there is no other way into a context
            file.write(certificate + key)
            file.flush()
            self._context.load_cert_chain(file.name)
        self._authority = certificate

    def _verify(self) -> None:
        sources = self._sources
        cafile, capath = sources["verify_cafile"], sources["verify_capath"]
        cadata = sources["verify_cadata"]
        if cafile or capath or cadata:
            is_pem = isinstance(cadata, bytes) and cadata.lstrip().startswith(b"-----BEGIN")
            self._context.load_verify_locations(cafile, capath, cadata.decode() if is_pem else cadata)
        mode = MODES[sources["demand"]]
        if mode is not None and self._context.verify_mode == ssl.CERT_NONE:
            self._context.verify_mode = mode

    def _read_mark(self) -> bytes:
        names = ("certfile", "pkeyfile", "cafile")
        paths = [self._sources[name] for name in names if self._sources[name]]
        return hashlib.sha256(b"".join(pathlib.Path(path).read_bytes() for path in paths)).digest()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        near, far = socket.socketpair()
        self._server.adopt(far.detach(), writer.get_extra_info("peercert") or None)
        inner_reader, inner_writer = await asyncio.open_connection(sock=near)
        try:
            await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))
        finally:
            inner_writer.close()
            writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        else:
            writer.close()


def _listen(addr: str | None, port: int) -> socket.socket:
    if addr:
        family, _, _, _, where = socket.getaddrinfo(addr, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(where[:2], family=family)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))
