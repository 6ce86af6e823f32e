"""A webhook server in the test process, which records its requests."""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import threading
import urllib.parse
from collections.abc import Callable
from typing import Any, NamedTuple

import trustme

Object = dict[str, Any]


class Reply(NamedTuple):
    """A response of the server. The body is a JSON value, or bytes."""

    body: Any
    status: int = 200
    content_type: str = "application/json"


Answer = Callable[[Object], Reply | None]
"""Makes the reply to a review; nothing closes the connection without one."""


class Call(NamedTuple):
    """A request that the server has received."""

    path: str
    query: str
    headers: dict[str, str]
    review: Object


def issued(authority: trustme.CA) -> ssl.SSLContext:
    """A server's side of TLS, with a certificate for the loopback address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


class WebhookServer:
    """Answers with `answers`, by the paths of requests; every other request is allowed."""

    def __init__(self, context: ssl.SSLContext | None = None, bundle: bytes | None = None) -> None:
        """By default, an own authority has issued the certificate."""
        self.answers: dict[str, Answer] = {}
        self._calls: list[Call] = []
        self._lock = threading.Lock()
        if context is None:
            authority = trustme.CA()
            context, bundle = issued(authority), authority.cert_pem.bytes()
        self._bundle = bundle
        self._context = context
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def client_config(self, path: str) -> Object:
        """`clientConfig` of a webhook."""
        url = f"https://127.0.0.1:{self._server.server_port}{path}"
        bundle = base64.b64encode(self._bundle or b"").decode()
        return {"url": url, **({"caBundle": bundle} if bundle else {})}

    def take_calls(self) -> list[Call]:
        """The calls since the last time."""
        with self._lock:
            calls, self._calls = self._calls, []
        return calls

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def setup(self) -> None:
                self.request = server._context.wrap_socket(self.request, server_side=True)
                super().setup()

            def finish(self) -> None:
                super().finish()
                self.request.close()  # the server closes only the socket without TLS

            def log_message(self, *_: object) -> None:
                pass

            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                reply = server._reply(self.path, dict(self.headers.items()), review)
                if reply is None:
                    self.close_connection = True
                    return
                body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
                self.send_response(reply.status)
                self.send_header("Content-Type", reply.content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        return Handler

    def _reply(self, target: str, headers: dict[str, str], review: Object) -> Reply | None:
        url = urllib.parse.urlsplit(target)
        with self._lock:
            self._calls.append(Call(url.path, url.query, headers, review))
        return self.answers.get(url.path, allow())(review)


def respond(response: Object) -> Answer:
    """The response of a review, with its uid."""

    def answer(review: Object) -> Reply:
        full = {"uid": review["request"]["uid"], **response}
        return Reply({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": full})

    return answer


def allow(**more: Any) -> Answer:
    return respond({"allowed": True, **more})


def deny(**status: Any) -> Answer:
    """A denial, with a status if there is any."""
    return respond({"allowed": False, **({"status": status} if status else {})})


def patch(*operations: Any, **more: Any) -> Answer:
    """Allow the request with a JSON patch."""
    return patch_text(json.dumps(operations), **more)


def patch_text(text: str, **more: Any) -> Answer:
    """Allow the request with the text of a patch."""
    encoded = base64.b64encode(text.encode()).decode()
    return allow(**{"patch": encoded, "patchType": "JSONPatch", **more})


def raw(body: Any, status: int = 200, content_type: str = "application/json") -> Answer:
    """The same response to every review."""
    return lambda _: Reply(body, status, content_type)


def hang_up(_: Object) -> None:
    """No response."""
