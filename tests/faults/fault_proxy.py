"""A proxy between an operator and its cluster that injects faults into connections, requests and responses.

It does not interpret requests, except that the response of a watch is forwarded line by line. The cluster is
the embedded API server or a real control plane.
"""

import contextlib
import dataclasses
import http.client
import http.server
import json
import queue
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
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
        """The verb as in RBAC rules, except that `get` is `list` here."""
        return "watch" if self.watch else {"GET": "list"}.get(self.method, self.method.lower())


@dataclasses.dataclass
class FaultAction:
    """The action of a fault on a request; all fields are optional."""

    answer: tuple[int, str, dict[str, str]] | None = None
    pause: float = 0
    drop: bool = False
    """Close the connection without forwarding the request."""
    lose: bool = False
    """Forward the request, and drop the response."""
    garbage: bool = False
    truncate: bool = False
    hang: bool = False
    """Keep the connection open without a response."""
    drip: bool = False
    """Send the response byte by byte."""
    late: float = 0
    """Seconds before the response is sent."""
    held: threading.Event | None = None
    """Forward the request when this is set."""


Fault = Callable[[Asked], FaultAction | None]


def free_port() -> int:
    """A TCP port that is not in use."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def rejection(code: int, reason: str, headers: dict[str, str] | None = None, **more: Any) -> FaultAction:
    """An error response in the format of the API server."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return FaultAction(answer=(code, json.dumps({**status, "message": reason, **more}), headers or {}))


def parts_of(data: bytes, drip: bool) -> list[bytes]:
    """The data in one part, or one part per byte if `drip`."""
    return [bytes([byte]) for byte in data] if drip else [data]


def delayed(lines: Iterable[bytes], seconds: float) -> Iterator[bytes]:
    """The same lines, each so many seconds later."""
    if not seconds:
        yield from lines
        return
    received: queue.SimpleQueue[tuple[float, bytes] | None] = queue.SimpleQueue()

    def receive() -> None:
        # The end of a broken stream is an end. If the client has left, the stream is closed while it is read.
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError, AttributeError):
            for line in lines:
                received.put((time.monotonic() + seconds, line))
        received.put(None)

    threading.Thread(target=receive, daemon=True).start()
    while (entry := received.get()) is not None:
        time.sleep(max(0.0, entry[0] - time.monotonic()))
        yield entry[1]


class ProxyHandler(http.server.BaseHTTPRequestHandler):
    """Serves one connection of the operator. Subclasses set `proxy`."""

    proxy: "FaultProxy"
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    is_watching = False
    is_silent = False
    count = 0
    code = 0

    def log_message(self, *_: object) -> None:
        pass

    def setup(self) -> None:
        self.raw_socket = self.request
        if self.proxy.tls is not None:
            self.request.settimeout(TIMEOUT)
            self.request = self.proxy.tls.wrap_socket(self.request, server_side=True)
            self.request.settimeout(None)
        super().setup()
        self.proxy.connections.add(self)

    def finish(self) -> None:
        self.proxy.connections.discard(self)
        with contextlib.suppress(OSError, ValueError):
            super().finish()
        if self.request is not self.raw_socket:
            self.request.close()

    def handle(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            super().handle()

    def serve(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        body = self.take(int(self.headers.get("Content-Length") or 0))
        asked = Asked(self.command, url.path, "watch=true" in url.query, token, body)
        action = next((it for fault in list(self.proxy.faults) if (it := fault(asked))), FaultAction())
        time.sleep(action.pause)
        if action.held is not None:
            action.held.wait()
        self.code = 0
        try:
            self.count += 1
            if self.is_silent or action.hang:
                self.hang()
            elif action.drop or (self.proxy.closes_reused and self.count > 1):
                self.close()
            elif action.answer is not None:
                self.code = action.answer[0]
                self.answer(*action.answer)
            else:
                self.forward(asked, action, body)
        except (OSError, http.client.HTTPException, ValueError):
            self.close()
        finally:
            self.proxy.asked.append((time.monotonic(), asked, self.code))

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = serve

    def take(self, length: int) -> bytes:
        if not self.proxy.reluctant or not length:
            return self.rfile.read(length)
        time.sleep(self.proxy.reluctant)
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

    def forward(self, asked: Asked, action: FaultAction, body: bytes) -> None:
        """Send the request to the cluster, and its response to the operator, if that waits for it."""
        upstream = self.proxy.connect()
        headers = dict(self.proxy.headers)
        if "Content-Type" in self.headers:
            headers["Content-Type"] = self.headers["Content-Type"]
        headers["User-Agent"] = self.headers.get("User-Agent", "")
        headers |= {name: it for name, it in self.headers.items() if name.lower().startswith("impersonate-")}
        try:
            upstream.request(self.command, self.path, body or None, headers)
            response = upstream.getresponse()
            self.code = response.status
            if asked.watch and response.status < 400:
                self.forward_watch(response, drip=action.drip)
                return
            text = response.read().decode()
            time.sleep(action.late)
            if action.lose:
                self.close()
            elif action.garbage:
                self.answer(response.status, "<html>not what you want</html>", {})
            else:
                cut = len(text) // 2 if action.truncate else None
                self.answer(response.status, text, {}, cut, drip=action.drip)
        finally:
            upstream.close()

    def forward_watch(self, response: http.client.HTTPResponse, *, drip: bool) -> None:
        self.is_watching = True
        self.send_response(response.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        for line in delayed(response, self.proxy.lag):
            # A silent connection never sends again: the operator has to open a new one.
            self.is_silent = self.is_silent or self.proxy.silent
            if self.is_silent:
                continue
            while self.proxy.injected:
                self.chunk(self.proxy.injected.pop())
            for part in parts_of(line, drip):
                self.chunk(part)
        self.wfile.write(b"0\r\n\r\n")

    def chunk(self, line: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
        self.wfile.flush()


class QuietServer(http.server.ThreadingHTTPServer):
    """A server that does not log connections closed by the client."""

    def handle_error(self, *_: object) -> None:
        pass


class FaultProxy:
    """A proxy that passes each request to its faults; the first fault that returns an action decides."""

    def __init__(self, url: str, headers: dict[str, str], context: ssl.SSLContext | None) -> None:
        self._url = urllib.parse.urlsplit(url)
        self.headers, self._context = headers, context
        self.faults: list[Fault] = []
        self.injected: list[bytes] = []
        self.silent = False
        self.lag = 0.0
        """Seconds by which the events of watches are delayed."""
        self.reluctant = 0.0
        """Seconds before the body of a request is read; then it is read byte by byte."""
        self.closes_reused = False
        """Whether connections are closed at their second request, without a response."""
        self.tls: ssl.SSLContext | None = None
        self.asked: list[tuple[float, Asked, int]] = []
        self.connections: set[ProxyHandler] = set()
        self._server: http.server.ThreadingHTTPServer | None = None
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def connect(self) -> http.client.HTTPConnection:
        """A new connection to the cluster."""
        where = self._url.netloc
        if self._context is None:
            return http.client.HTTPConnection(where, timeout=TIMEOUT)
        return http.client.HTTPSConnection(where, timeout=TIMEOUT, context=self._context)

    def start(self) -> None:
        handler = type("Handler", (ProxyHandler,), {"proxy": self})
        server = QuietServer(("127.0.0.1", self._port), handler)
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
        for handler in list(self.connections):
            if everything or handler.is_watching:
                with contextlib.suppress(OSError):
                    handler.connection.shutdown(2)

    def silence(self) -> None:
        """Keep the current connections open without sending anything on them again."""
        for handler in list(self.connections):
            handler.is_silent = True
