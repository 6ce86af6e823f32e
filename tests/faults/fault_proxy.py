"""A proxy between an operator and its cluster, which misbehaves on request. It owns connections and faults;
it must not know what the requests are about, but that watches come line by line.

It stands before any cluster: the embedded server, or the real control plane.
"""

import contextlib
import dataclasses
import http.client
import http.server
import json
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable
from typing import Any

TIMEOUT = 30.0


@dataclasses.dataclass
class Asked:
    """A request of the operator."""

    method: str
    path: str
    watch: bool
    token: str
    body: bytes = b""

    @property
    def verb(self) -> str:
        """As permissions name it, except that getting is listing here."""
        return "watch" if self.watch else {"GET": "list"}.get(self.method, self.method.lower())


@dataclasses.dataclass
class Doing:
    """What is done to a request: all is optional."""

    answer: tuple[int, str, dict[str, str]] | None = None
    pause: float = 0
    drop: bool = False
    """The connection is closed, and nothing reaches the server."""
    lose: bool = False
    """The server does it, but its answer is lost."""
    garbage: bool = False
    truncate: bool = False
    hang: bool = False
    """The connection stays open, and nothing ever comes."""
    drip: bool = False
    """The answer comes byte by byte."""


Fault = Callable[[Asked], Doing | None]


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def refusal(code: int, reason: str, headers: dict[str, str] | None = None, **more: Any) -> Doing:
    """An answer as the API server refuses."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return Doing(answer=(code, json.dumps({**status, "message": reason, **more}), headers or {}))


def parts_of(data: bytes, drip: bool) -> list[bytes]:
    """All at once, or each byte for itself."""
    return [bytes([byte]) for byte in data] if drip else [data]


class Quiet(http.server.ThreadingHTTPServer):
    """Clients that break off are no news."""

    def handle_error(self, *_: object) -> None:
        pass


class FaultProxy:
    """One proxy; each request goes through the faults, and the first that does something to it counts."""

    def __init__(self, url: str, headers: dict[str, str], context: ssl.SSLContext | None) -> None:
        self._url = urllib.parse.urlsplit(url)
        self._headers, self._context = headers, context
        self.faults: list[Fault] = []
        self.injected: list[bytes] = []
        self.silent = False
        self.reluctant = 0.0
        """How long requests with a body are left unread, in seconds; then they are read byte by byte."""
        self.closes_reused = False
        """Whether connections are closed at their second request, without a response."""
        self.tls: ssl.SSLContext | None = None
        self.asked: list[tuple[float, Asked, int]] = []
        self._streams: set[Any] = set()
        self._server: http.server.ThreadingHTTPServer | None = None
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        server = Quiet(("127.0.0.1", self._port), self._handler())
        server.daemon_threads = True
        self._server, self._port = server, server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Close the port and all connections, as if the server were killed."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        self.cut(everything=True)

    def cut(self, *, everything: bool = False) -> None:
        """Break all watches, or all connections."""
        for handler in list(self._streams):
            if everything or handler.is_watching:
                with contextlib.suppress(OSError):
                    handler.connection.shutdown(2)

    def silence(self) -> None:
        """Let all connections of now stay open, and never say anything again."""
        for handler in list(self._streams):
            handler.is_silent = True

    def _handler(proxy) -> type[http.server.BaseHTTPRequestHandler]:
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            is_watching = False
            is_silent = False
            count = 0

            def log_message(self, *_: object) -> None:
                pass

            def setup(self) -> None:
                self.given = self.request
                if proxy.tls is not None:
                    self.request.settimeout(TIMEOUT)
                    self.request = proxy.tls.wrap_socket(self.request, server_side=True)
                    self.request.settimeout(None)
                super().setup()
                proxy._streams.add(self)

            def finish(self) -> None:
                proxy._streams.discard(self)
                with contextlib.suppress(OSError, ValueError):
                    super().finish()
                if self.request is not self.given:
                    self.request.close()

            def handle(self) -> None:
                with contextlib.suppress(OSError, ValueError):
                    super().handle()

            def serve(self) -> None:
                url = urllib.parse.urlsplit(self.path)
                token = self.headers.get("Authorization", "").removeprefix("Bearer ")
                body = self.take(int(self.headers.get("Content-Length") or 0))
                asked = Asked(self.command, url.path, "watch=true" in url.query, token, body)
                doing = next((it for fault in list(proxy.faults) if (it := fault(asked))), Doing())
                time.sleep(doing.pause)
                code = 0
                try:
                    self.count += 1
                    if self.is_silent or doing.hang:
                        self.hang()
                    elif doing.drop or (proxy.closes_reused and self.count > 1):
                        self.close()
                    elif doing.answer is not None:
                        code = doing.answer[0]
                        self.answer(*doing.answer)
                    else:
                        code = self.forward(asked, doing, body)
                except (OSError, http.client.HTTPException, ValueError):
                    self.close()
                finally:
                    proxy.asked.append((time.monotonic(), asked, code))

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = serve

            def take(self, length: int) -> bytes:
                if not proxy.reluctant or not length:
                    return self.rfile.read(length)
                time.sleep(proxy.reluctant)
                return b"".join(self.rfile.read(1) for _ in range(length))

            def hang(self) -> None:
                self.is_watching = True
                while self.rfile.read(1):
                    pass
                self.close()

            def close(self) -> None:
                self.close_connection = True
                with contextlib.suppress(OSError):
                    self.connection.shutdown(2)

            def answer(
                self,
                code: int,
                text: str,
                headers: dict[str, str],
                cut: int | None = None,
                *,
                drip: bool = False,
            ) -> None:
                data = text.encode()
                self.send_response(code)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                for part in parts_of(data[:cut], drip):
                    self.wfile.write(part)
                if cut is not None:
                    self.close()

            def forward(self, asked: Asked, doing: Doing, body: bytes) -> int:
                where, timeout = proxy._url.netloc, TIMEOUT
                if proxy._context is not None:
                    upstream: http.client.HTTPConnection = http.client.HTTPSConnection(
                        where, timeout=timeout, context=proxy._context
                    )
                else:
                    upstream = http.client.HTTPConnection(where, timeout=timeout)
                headers = dict(proxy._headers)
                if "Content-Type" in self.headers:
                    headers["Content-Type"] = self.headers["Content-Type"]
                headers["User-Agent"] = self.headers.get("User-Agent", "")
                try:
                    upstream.request(self.command, self.path, body or None, headers)
                    response = upstream.getresponse()
                    if asked.watch and response.status < 400:
                        self.relay(response, drip=doing.drip)
                        return response.status
                    text = response.read().decode()
                    if doing.lose:
                        self.close()
                    elif doing.garbage:
                        self.answer(response.status, "<html>not what you want</html>", {})
                    else:
                        cut = len(text) // 2 if doing.truncate else None
                        self.answer(response.status, text, {}, cut, drip=doing.drip)
                    return response.status
                finally:
                    upstream.close()

            def relay(self, response: http.client.HTTPResponse, *, drip: bool) -> None:
                self.is_watching = True
                self.send_response(response.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.flush()
                for line in response:
                    # What is silent once, stays so: only a new connection tells.
                    self.is_silent = self.is_silent or proxy.silent
                    if self.is_silent:
                        continue
                    while proxy.injected:
                        self.chunk(proxy.injected.pop())
                    for part in parts_of(line, drip):
                        self.chunk(part)
                self.wfile.write(b"0\r\n\r\n")

            def chunk(self, line: bytes) -> None:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
                self.wfile.flush()

        return Handler
