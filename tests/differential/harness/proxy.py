"""A recording reverse proxy: plain HTTP for the operator, the cluster's scheme towards the API server.

Each run has a separate proxy. It records the writes and the opened watches, and the time of the last bytes.
All proxies run in one event loop in one thread; other threads only read their attributes.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
import urllib.parse
from collections.abc import Coroutine
from typing import Any, TypeVar

from .cluster import Endpoint

MUTATING = {"POST", "PUT", "PATCH", "DELETE"}
HOP_HEADERS = {"connection", "keep-alive", "proxy-connection", "authorization", "host", "expect"}
FRAMING_HEADERS = {"content-length", "transfer-encoding"}
OPERATOR_TOKEN = "operator-token"
BUFFER = 2**20
CHUNK = 2**16

Headers = dict[str, str]
T = TypeVar("T")


class Loop:
    """One event loop in one thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def call(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine in the loop, and wait for its result."""
        return asyncio.run_coroutine_threadsafe(coro, self._loop).result(30)


class Connection:
    """A connection to the API server, which several requests use one after another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def request(self, payload: bytes) -> tuple[str, Headers]:
        """Send a request, and return the status line and the headers of the response."""
        self.writer.write(payload)
        await self.writer.drain()
        start, headers = await read_head(self.reader)
        if not start:
            raise EOFError
        return start, headers


class Proxy:
    """The proxy of one run."""

    def __init__(self, endpoint: Endpoint, loop: Loop) -> None:
        self._endpoint, self._loop = endpoint, loop
        # The writes in the order of their arrival, and the targets of the opened watches.
        self.records: list[dict[str, Any]] = []
        self.watches: list[str] = []
        self.last_activity = time.monotonic()
        self.in_flight = 0
        self._idle: list[Connection] = []
        self._clients: set[asyncio.Task[None]] = set()

    def start(self) -> Proxy:
        self._loop.call(self._start())
        return self

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=BUFFER)
        self._port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        self._loop.call(self._stop())

    async def _stop(self) -> None:
        self._server.close()
        for task in list(self._clients):
            task.cancel()
        for connection in self._idle:
            connection.writer.close()
        self._idle.clear()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def _touch(self) -> None:
        self.last_activity = time.monotonic()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            while await self._exchange(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError, EOFError):
            pass
        finally:
            self._clients.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Forward one request and its response; return whether the client can send another request."""
        start, headers = await read_head(reader)
        if not start:
            return False
        method, target, _ = start.split(" ", 2)
        body = await read_body(reader, headers)
        record = self._record(method, target, headers, body)
        self._touch()
        if headers.get("authorization", "") != f"Bearer {OPERATOR_TOKEN}":
            await reject(writer, record)
            return True
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(target).query))
        is_watch = query.get("watch") in ("true", "1")
        if is_watch:
            self.watches.append(target)
        else:
            self.in_flight += 1
        try:
            payload = self._payload(method, target, headers, body)
            return await self._forward(reader, writer, method, payload, record, is_watch)
        finally:
            self._touch()
            if not is_watch:
                self.in_flight -= 1

    def _record(self, method: str, target: str, headers: Headers, body: bytes) -> dict[str, Any] | None:
        if method not in MUTATING:
            return None
        try:
            data = json.loads(body) if body else None
        except ValueError:
            data = body.decode("utf-8", "replace")
        record = {
            "method": method,
            "path": urllib.parse.urlsplit(target).path,
            "type": headers.get("content-type"),
            "body": data,
            "status": None,
        }
        self.records.append(record)
        return record

    def _payload(self, method: str, target: str, headers: Headers, body: bytes) -> bytes:
        lines = [f"{method} {target} HTTP/1.1", f"host: {self._endpoint.host}:{self._endpoint.port}"]
        if self._endpoint.token:
            lines.append(f"authorization: Bearer {self._endpoint.token}")
        kept = {key: value for key, value in headers.items() if key not in HOP_HEADERS | FRAMING_HEADERS}
        lines += [f"{key}: {value}" for key, value in kept.items()]
        if body or method in ("POST", "PUT", "PATCH"):
            lines.append(f"content-length: {len(body)}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        method: str,
        payload: bytes,
        record: dict[str, Any] | None,
        is_watch: bool,
    ) -> bool:
        connection, start, headers = await self._request(payload)
        try:
            status = int(start.split(" ", 2)[1])
            if record is not None:
                record["status"] = status
            head = [start, *(f"{key}: {value}" for key, value in headers.items() if key not in HOP_HEADERS)]
            writer.write(("\r\n".join(head) + "\r\n\r\n").encode("latin-1"))
            has_body = method != "HEAD" and status not in (204, 304)
            copy = asyncio.ensure_future(
                self._copy(connection.reader, writer, headers, is_watch)
                if has_body
                else self._copy_nothing(writer, headers)
            )
            try:
                # Notice when a client leaves a watch without events.
                while is_watch and not copy.done() and not reader.at_eof() and reader.exception() is None:
                    await asyncio.wait({copy}, timeout=0.1)
                is_reusable = await copy if copy.done() or not is_watch else False
            finally:
                copy.cancel()
        except BaseException:
            connection.writer.close()
            raise
        if not is_reusable:
            connection.writer.close()
            return False
        self._idle.append(connection)
        return True

    async def _request(self, payload: bytes) -> tuple[Connection, str, Headers]:
        """Send a request, on an idle connection if the server has not closed it."""
        while True:
            is_new = not self._idle
            connection = await self._connect() if is_new else self._idle.pop()
            try:
                return connection, *await connection.request(payload)
            except (OSError, EOFError, asyncio.IncompleteReadError):
                connection.writer.close()
                if is_new:
                    raise

    async def _connect(self) -> Connection:
        end = self._endpoint
        return Connection(*await asyncio.open_connection(end.host, end.port, ssl=end.tls, limit=BUFFER))

    async def _copy_nothing(self, writer: asyncio.StreamWriter, headers: Headers) -> bool:
        await writer.drain()
        return headers.get("connection", "").lower() != "close"

    async def _copy(
        self, source: asyncio.StreamReader, writer: asyncio.StreamWriter, headers: Headers, is_watch: bool
    ) -> bool:
        """Copy the body of a response; return whether the connection to the server can be used again."""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            length = -1
            while length:
                size = await source.readline()
                length = int(size.split(b";")[0], 16)
                chunk = await source.readexactly(length + 2)
                if not (is_watch and b'"type":"BOOKMARK"' in chunk):
                    self._touch()
                writer.write(size + chunk)
                await writer.drain()
        elif "content-length" in headers:
            rest = int(headers["content-length"])
            while rest:
                chunk = await source.read(min(rest, CHUNK))
                if not chunk:
                    raise EOFError
                rest -= len(chunk)
                writer.write(chunk)
                await writer.drain()
        else:
            while chunk := await source.read(CHUNK):
                self._touch()
                writer.write(chunk)
                await writer.drain()
            return False
        return await self._copy_nothing(writer, headers)


async def reject(writer: asyncio.StreamWriter, record: dict[str, Any] | None) -> None:
    """Respond that the credentials are wrong."""
    if record is not None:
        record["status"] = 401
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": 401,
        "reason": "Unauthorized",
    }
    body = json.dumps(status).encode()
    head = (
        f"HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()


async def read_head(reader: asyncio.StreamReader) -> tuple[str, Headers]:
    """The first line and the headers; an empty line at the end of the connection."""
    start = (await reader.readline()).decode("latin-1").rstrip("\r\n")
    headers: Headers = {}
    while start and (line := (await reader.readline()).decode("latin-1").rstrip("\r\n")):
        key, _, value = line.partition(":")
        headers[key.strip().lower()] = value.strip()
    return start, headers


async def read_body(reader: asyncio.StreamReader, headers: Headers) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length") or 0))
    body = b""
    while length := int((await reader.readline()).split(b";")[0], 16):
        body += (await reader.readexactly(length + 2))[:-2]
    await reader.readline()
    return body
