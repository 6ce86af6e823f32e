"""A proxy in front of the real API server that records requests and injects faults.

Its clients use plain HTTP; it authenticates to the API server as an administrator. It forwards watches line
by line.
"""

import contextlib
import dataclasses
import http.client
import http.server
import json
import pathlib
import threading
import time
import urllib.parse
from collections.abc import Callable

import yaml

from tests.support import cluster as kube


@dataclasses.dataclass(frozen=True)
class Request:
    """A request to the proxy."""

    method: str
    path: str
    query: dict[str, str]


# A status and a text instead of the server's answer; nothing to let the request through.
Fault = Callable[[Request], tuple[int, str] | None]


class Proxy:
    """One proxy; its faults are asked for each request, in order."""

    def __init__(self, cluster: kube.Cluster) -> None:
        self.cluster = cluster
        self.requests: list[Request] = []
        # The watches that the API server has answered.
        self._open_watches: list[Request] = []
        # The watches that have received a bookmark, once per bookmark.
        self._bookmarks: list[Request] = []
        self._changed = threading.Condition()
        self.faults: list[Fault] = []
        self._streams: set[http.client.HTTPConnection] = set()
        self._delivers = threading.Event()
        self._delivers.set()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def kubeconfig(self, folder: pathlib.Path) -> pathlib.Path:
        """A kubeconfig of the proxy."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "proxy",
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
            "clusters": [{"name": "proxy", "cluster": {"server": self.url}}],
            "users": [{"name": "proxy", "user": {"token": "not-checked"}}],
        }
        path = folder / "proxy.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    def asked(self, path: str, **query: str) -> list[Request]:
        """The requests of that path (its end) with these parameters, so far."""
        return [
            request
            for request in self.requests
            if request.path.endswith(path) and query.items() <= request.query.items()
        ]

    def record_open_watch(self, watch: Request) -> None:
        with self._changed:
            self._open_watches.append(watch)
            self._changed.notify_all()

    def wait_for_open_watch(self, path: str, *, timeout: float = 60) -> None:
        """Wait until the API server has answered a watch of that path (its end)."""
        with self._changed:
            is_open = self._changed.wait_for(
                lambda: any(watch.path.endswith(path) for watch in self._open_watches), timeout
            )
            assert is_open, f"no watch of {path}; requests: {self.requests}"

    def record_bookmark(self, watch: Request) -> None:
        with self._changed:
            self._bookmarks.append(watch)
            self._changed.notify_all()

    def wait_for_bookmarks(
        self, path: str, count: int, *, timeout: float, alive: Callable[[], None] = lambda: None
    ) -> None:
        """Wait until the watches of that path (its end) have received so many bookmarks.

        `alive` is called now and then; it raises if further waiting makes no sense.
        """
        until = time.monotonic() + timeout
        with self._changed:
            while sum(1 for watch in self._bookmarks if watch.path.endswith(path)) < count:
                assert time.monotonic() < until, f"bookmarks: {self._bookmarks}; requests: {self.requests}"
                alive()
                self._changed.wait(1)

    def hold_watches(self) -> None:
        """Deliver no further events of watches, until `release_watches()`."""
        self._delivers.clear()

    def release_watches(self) -> None:
        self._delivers.set()

    def cut(self) -> None:
        """Break all streams."""
        for connection in list(self._streams):
            with contextlib.suppress(OSError):
                sock = connection.sock
                if sock is not None:
                    sock.shutdown(2)

    def close(self) -> None:
        self.release_watches()
        self.cut()
        self._server.shutdown()
        self._server.server_close()

    def _handler(proxy) -> type[http.server.BaseHTTPRequestHandler]:
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def serve(self) -> None:
                url = urllib.parse.urlsplit(self.path)
                request = Request(self.command, url.path, dict(urllib.parse.parse_qsl(url.query)))
                proxy.requests.append(request)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                for fault in list(proxy.faults):
                    answer = fault(request)
                    if answer is not None:
                        self.answer(*answer)
                        return
                try:
                    self.forward(request, body, is_stream="watch" in request.query)
                except (OSError, http.client.HTTPException):
                    # The client must notice it, even if the response has not begun.
                    self.close_connection = True

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = serve

            def answer(self, code: int, text: str) -> None:
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def forward(self, request: Request, body: bytes, *, is_stream: bool) -> None:
                connection = proxy.cluster._connect(timeout=300)
                headers = dict(proxy.cluster._headers)
                if "Content-Type" in self.headers:
                    headers["Content-Type"] = self.headers["Content-Type"]
                try:
                    # `cut()` must find it as soon as the API server can have received the request.
                    connection.connect()
                    proxy._streams.add(connection)
                    connection.request(self.command, self.path, body or None, headers)
                    response = connection.getresponse()
                    if not is_stream or response.status >= 400:
                        self.answer(response.status, response.read().decode())
                        return
                    self.send_response(response.status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    proxy.record_open_watch(request)
                    for line in response:
                        proxy._delivers.wait()
                        self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
                        self.wfile.flush()
                        if line.startswith(b'{"type":"BOOKMARK"'):
                            proxy.record_bookmark(request)
                    self.wfile.write(b"0\r\n\r\n")
                finally:
                    proxy._streams.discard(connection)
                    connection.close()

        return Handler


def refusal(code: int, reason: str) -> tuple[int, str]:
    """An error response in the format of the API server."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return code, json.dumps({**status, "message": reason})
