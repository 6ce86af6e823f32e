"""Webhook servers without an operator, with a function of the test."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import http.client
import json
import logging
import re
import select
import ssl
import sys
import threading
import time
import types
from collections.abc import Awaitable, Callable
from typing import Any

import kopf
import pytest
from kopf._kits import webhooks
from kopf._kits.webhooks import local_clusters, tls_proxy
from kopf._runtime.admission import AmbiguousResourceError, UnknownResourceError, WebhookError

pytestmark = pytest.mark.contract("api 9")

pytest.importorskip("kopf._kopf", reason="the native module is not built")


async def respond(request: Any, *, webhook: Any = None, headers: Any = None, sslpeer: Any = None) -> Any:
    errors = {
        "ambiguous": AmbiguousResourceError("which one?"),
        "unknown": UnknownResourceError("who?"),
        "bad": WebhookError("what?"),
        "broken": ZeroDivisionError("oops"),
    }
    if webhook in errors:
        raise errors[webhook]
    return {"request": request, "webhook": webhook, "headers": headers, "sslpeer": sslpeer}


def serve(server: Any, client: Callable[[dict[str, Any]], Awaitable[Any]], fn: Any = respond) -> Any:
    async def main() -> Any:
        async with server as entered:
            async for config in entered(fn):
                return await client(config)

    return asyncio.run(asyncio.wait_for(main(), 30))


def post(path: str = "", body: bytes = b"{}", *, cert: Any = None, method: str = "POST") -> Any:
    """A client: the status, the reason, the text."""

    def talk(config: dict[str, Any]) -> tuple[int, str, str]:
        scheme, _, rest = config["url"].partition("://")
        where, slash, prefix = rest.partition("/")
        connection: http.client.HTTPConnection
        if scheme == "https":
            context = ssl.create_default_context(cadata=base64.b64decode(config["caBundle"]).decode())
            if cert is not None:
                context.load_cert_chain(*cert)
            connection = http.client.HTTPSConnection(where, timeout=60, context=context)
        else:
            connection = http.client.HTTPConnection(where, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, f"{slash}{prefix}{path}", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.reason, response.read().decode()

    async def client(config: dict[str, Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, talk, config)

    return client


@pytest.mark.contract("api 9.4")
def test_a_server_makes_its_own_certificate_and_is_trusted_by_its_bundle():
    server = kopf.WebhookServer(addr="127.0.0.1", path="/some")
    status, reason, text = serve(server, post("/a%20b/c", b'{"x":1}'))
    assert (status, reason) == (200, "OK")
    response = json.loads(text)
    assert response["request"] == {"x": 1} and response["webhook"] == "a b/c" and response["sslpeer"] is None
    assert response["headers"]["Content-Type"] == "application/json"


def test_without_encryption_there_is_no_bundle():
    async def client(config: dict[str, Any]) -> Any:
        return config

    config = serve(kopf.WebhookServer(addr="127.0.0.1", insecure=True), client)
    assert config["url"].startswith("http://127.0.0.1:") and "caBundle" not in config


@pytest.mark.contract("api 9.4")
@pytest.mark.parametrize(
    "path, body, status, reason",
    [
        ("/ambiguous", b"{}", 409, "which one?"),
        ("/unknown", b"{}", 404, "who?"),
        ("/bad", b"{}", 400, "what?"),
        ("/broken", b"{}", 500, "Internal Server Error"),
        ("/any", b"{", 400, "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
    ],
)
def test_errors_become_statuses(path, body, status, reason):
    server = kopf.WebhookServer(addr="127.0.0.1", insecure=True)
    response = serve(server, post(path, body))
    assert response[:2] == (status, reason)
    assert response[2] == f"{status}: {reason}"


def test_only_posts_are_served():
    server = kopf.WebhookServer(addr="127.0.0.1", insecure=True)
    assert serve(server, post("/x", method="GET"))[0] == 405


@pytest.mark.contract("observed 11")
@pytest.mark.parametrize(
    "kwargs, host",
    [
        ({}, "localhost"),
        ({"addr": "0.0.0.0"}, "127.0.0.1"),
        ({"addr": "::"}, "[::1]"),
        ({"addr": "127.0.0.1", "host": "some.host"}, "some.host"),
        ({"addr": "127.0.0.1", "host": "fe80::1"}, "[fe80::1]"),
    ],
)
def test_the_advertised_host(kwargs, host):
    server = kopf.WebhookServer(**kwargs)
    assert server._config(8080, None)["url"] == f"https://{host}:8080"
    assert server._config(443, None)["url"] == f"https://{host}"


@pytest.mark.parametrize(
    "cls, host",
    [
        (kopf.WebhookK3dServer, "host.k3d.internal"),
        (kopf.WebhookMinikubeServer, "host.minikube.internal"),
        (kopf.WebhookDockerDesktopServer, "host.docker.internal"),
    ],
)
def test_local_clusters_have_hosts_of_their_own(cls, host):
    assert cls(path="/p")._config(9443, None)["url"] == f"https://{host}:9443/p"
    assert cls(extra_sans=["x"])._hostnames() == [host, "localhost", "x"]
    assert cls(host="mine")._config(9443, None)["url"] == "https://mine:9443"


def test_certificates_are_for_the_host_and_for_clients_on_this_machine():
    assert kopf.WebhookServer(addr="0.0.0.0", host="h")._hostnames() == ["h", "127.0.0.1"]
    assert kopf.WebhookServer(host="h")._hostnames() == ["h", "localhost"]
    assert kopf.WebhookServer(addr="::")._hostnames() == ["::1"]
    server = kopf.WebhookServer(extra_sans=(name for name in ["x"]))
    assert server._hostnames() == server._hostnames() == ["localhost", "x"]


def test_clients_without_certificates_are_accepted_whenever_there_is_an_authority():
    for mode in (None, ssl.CERT_NONE):
        server = kopf.WebhookServer(verify_mode=mode, verify_cafile="ca.pem")
        assert server._tls_options()["demand"] == "optional"


@pytest.fixture
def files(tmp_path):
    certificate, key = kopf.WebhookServer.build_certificate(["127.0.0.1", "localhost"], "secret")
    (tmp_path / "cert.pem").write_bytes(certificate)
    (tmp_path / "key.pem").write_bytes(key)
    return tmp_path


def test_files_with_a_password_are_served_and_dumped(files):
    server = kopf.WebhookServer(
        addr="127.0.0.1",
        certfile=files / "cert.pem",
        pkeyfile=files / "key.pem",
        password="secret",
        cadump=files / "dump.pem",
    )
    assert serve(server, post("/x"))[0] == 200
    assert (files / "dump.pem").read_bytes() == (files / "cert.pem").read_bytes()


def test_a_wrong_password_is_reported(files):
    server = kopf.WebhookServer(certfile=files / "cert.pem", pkeyfile=files / "key.pem", password="wrong")
    with pytest.raises(ValueError, match="is the password right"):
        serve(server, post("/x"))


def test_a_given_bundle_wins_over_files_but_not_over_self_signed_certificates(files):
    async def client(config: dict[str, Any]) -> Any:
        return base64.b64decode(config["caBundle"])

    pair = {"certfile": files / "cert.pem", "pkeyfile": files / "key.pem", "password": "secret"}
    (files / "ca.pem").write_bytes(b"from file")
    assert serve(kopf.WebhookServer(**pair, cafile=files / "ca.pem"), client) == b"from file"
    assert serve(kopf.WebhookServer(**pair, cafile=files / "ca.pem", cadata=b"data"), client) == b"data"
    assert serve(kopf.WebhookServer(cadata=b"data"), client).startswith(b"-----BEGIN CERTIFICATE-----")


@pytest.mark.parametrize("own_context", [False, True])
def test_changed_files_are_taken_up_without_closing_the_port(files, own_context):
    certfile, pkeyfile = files / "cert.pem", files / "key.pem"
    server = kopf.WebhookServer(
        addr="127.0.0.1",
        certfile=certfile,
        pkeyfile=pkeyfile,
        password="secret",
        file_check_interval=0,
        context=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if own_context else None,
    )

    async def main() -> Any:
        configs = []
        async with server:
            async for config in server(respond):
                configs.append(config)
                assert (await post("/x")(config))[0] == 200
                if len(configs) == 2:
                    return configs
                fresh, key = kopf.WebhookServer.build_certificate(["127.0.0.1"], "secret")
                pkeyfile.write_bytes(key)
                certfile.write_bytes(fresh)

    first, second = asyncio.run(asyncio.wait_for(main(), 30))
    assert first["url"] == second["url"] and first["caBundle"] != second["caBundle"]
    assert base64.b64decode(second["caBundle"]) == certfile.read_bytes()


def test_a_certificate_is_served_until_the_next_one_has_its_key(files):
    certfile, pkeyfile = files / "cert.pem", files / "key.pem"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    unused = ["cafile", "cadata", "verify_cafile", "verify_capath", "verify_cadata"]
    sources = dict.fromkeys(unused) | {
        "certfile": certfile,
        "pkeyfile": pkeyfile,
        "password": "secret",
    }
    proxy = tls_proxy.TlsProxy(
        types.SimpleNamespace(report_certificate=lambda _: None),
        context,
        addr="127.0.0.1",
        port=0,
        sources=sources,
        verify_mode=None,
        build_certificate=kopf.WebhookServer.build_certificate,
    )

    def is_served() -> bool:
        trusting = ssl.create_default_context(cadata=proxy.ca_bundle().decode())
        to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = context.wrap_bio(to_server, to_client, server_side=True)
        client = trusting.wrap_bio(to_client, to_server, server_hostname="localhost")
        for side in (client, server, client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
        return bool(client.getpeercert())

    assert proxy.reload() and is_served()
    fresh, key = kopf.WebhookServer.build_certificate(["127.0.0.1", "localhost"], "secret")
    certfile.write_bytes(fresh)
    with pytest.raises(ssl.SSLError):
        proxy.reload()
    assert is_served()
    pkeyfile.write_bytes(key)
    assert proxy.reload() and is_served()
    assert proxy.ca_bundle() == fresh


@pytest.mark.parametrize("own_context", [False, True])
def test_client_certificates_are_verified_and_passed_on(files, own_context):
    def server(**kwargs: Any) -> kopf.WebhookServer:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if own_context else None
        return kopf.WebhookServer(
            addr="127.0.0.1", verify_cafile=files / "cert.pem", context=context, **kwargs
        )

    cert = (files / "cert.pem", files / "key.pem", "secret")
    response = json.loads(serve(server(), post("/x", cert=cert))[2])
    assert response["sslpeer"]["subject"] == [[["commonName", "localhost"]]]
    assert ["IP Address", "127.0.0.1"] in response["sslpeer"]["subjectAltName"]
    assert json.loads(serve(server(), post("/x"))[2])["sslpeer"] is None
    if not own_context:
        with pytest.raises(OSError):
            serve(server(verify_mode=ssl.CERT_REQUIRED), post("/x"))


def test_a_context_of_the_user_is_used_and_excludes_insecurity():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    response = serve(kopf.WebhookServer(addr="127.0.0.1", context=context, path="/p"), post("/x", b"[1]"))
    assert json.loads(response[2])["request"] == [1]
    with pytest.raises(ValueError, match="Insecure mode cannot have an SSL context specified"):
        serve(kopf.WebhookServer(context=context, insecure=True), post("/x"))


def test_the_given_mode_replaces_that_of_the_context(files):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files / "cert.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    server = kopf.WebhookServer(addr="127.0.0.1", context=context, verify_mode=ssl.CERT_NONE)
    assert serve(server, post("/x"))[0] == 200
    assert context.verify_mode == ssl.CERT_NONE


@pytest.mark.parametrize("own_context", [False, True])
def test_the_certificate_can_be_made_by_a_subclass(files, own_context):
    calls = []

    class Extended(kopf.WebhookServer):
        def build_certificate(self, hostnames, password=None):
            calls.append((hostnames, password))
            return (files / "cert.pem").read_bytes().rstrip(), (files / "key.pem").read_bytes()

    async def client(config: dict[str, Any]) -> Any:
        bundle = base64.b64decode(config["caBundle"])
        return bundle, (await post("/x")(config))[0]

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if own_context else None
    server = Extended(addr="127.0.0.1", password="secret", extra_sans=["x"], context=context)
    assert serve(server, client) == ((files / "cert.pem").read_bytes().rstrip(), 200)
    assert calls == [(["127.0.0.1", "x"], "secret")]


def test_a_subclass_does_not_make_a_certificate_that_is_not_needed(files):
    class Extended(kopf.WebhookServer):
        @staticmethod
        def build_certificate(hostnames, password=None):
            raise NotImplementedError

    pair = {"certfile": files / "cert.pem", "pkeyfile": files / "key.pem", "password": "secret"}
    assert serve(Extended(addr="127.0.0.1", **pair), post("/x"))[0] == 200
    assert serve(Extended(addr="127.0.0.1", insecure=True), post("/x"))[0] == 200


def test_a_port_is_not_shared():
    async def client(config: dict[str, Any]) -> Any:
        port = int(config["url"].rpartition(":")[2])
        second = kopf.WebhookServer(addr="127.0.0.1", port=port, insecure=True)
        text = rf"The webhook server cannot listen at 127.0.0.1:{port}: .* choose another port"
        with pytest.raises(OSError, match=text):
            async with second:
                await anext(aiter(second(respond)))

    serve(kopf.WebhookServer(addr="127.0.0.1", insecure=True), client)


def test_idle_connections_do_not_keep_a_server_with_a_context_from_answering(monkeypatch):
    monkeypatch.setattr(tls_proxy, "HANDSHAKE_GRACE", 0.1)

    async def client(config: dict[str, Any]) -> Any:
        port = int(config["url"].rpartition(":")[2])
        idle = [
            await asyncio.open_connection("127.0.0.1", port) for _ in range(tls_proxy.MAX_HANDSHAKES + 10)
        ]
        response = await post("/x", b"[1]")(config)
        # The oldest ones have made room for the others.
        for reader, _ in idle[:10]:
            assert await reader.read() == b""
        for _, writer in idle:
            writer.close()
        return response

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    assert serve(kopf.WebhookServer(addr="127.0.0.1", context=context), client)[0] == 200


def test_a_server_with_a_context_reports_that_it_cannot_accept_connections(monkeypatch, caplog):
    accept = asyncio.SelectorEventLoop.sock_accept
    failures: list[OSError] = [OSError(errno.EMFILE, "Too many open files")] * 3
    failures.append(ConnectionAbortedError(errno.ECONNABORTED, "Software caused connection abort"))

    async def sometimes_accept(self: Any, sock: Any) -> Any:
        if failures:
            raise failures.pop()
        return await accept(self, sock)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_accept", sometimes_accept)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    assert serve(kopf.WebhookServer(addr="127.0.0.1", context=context), post("/x"))[0] == 200
    lines = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert lines == ["The webhook server cannot accept connections for now: [Errno 24] Too many open files"]


def test_servers_can_be_extended():
    class Extended(kopf.WebhookServer):
        async def __call__(self, fn):
            async for config in super().__call__(fn):
                yield {**config, "url": config["url"] + "/extended"}

    async def client(config: dict[str, Any]) -> Any:
        return config["url"]

    assert serve(Extended(addr="127.0.0.1", insecure=True), client).endswith("/extended")


def test_a_tunnel_needs_its_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyngrok", None)
    with pytest.raises(ImportError, match="pip install pyngrok"):
        serve(kopf.WebhookNgrokTunnel(), post("/x"))
    with pytest.raises(webhooks.MissingDependencyError):
        serve(kopf.WebhookAutoTunnel(), post("/x"))


@pytest.fixture
def ngrok(monkeypatch):
    """A fake of pyngrok that records tunnels and options."""
    default = types.SimpleNamespace(region="us", ngrok_path="/usual", auth_token=None)
    seen = types.SimpleNamespace(opened=[], closed=[], default=default)

    def connect(addr: str) -> Any:
        seen.opened.append(addr)
        return types.SimpleNamespace(public_url="https://public")

    fake = types.SimpleNamespace(
        conf=types.SimpleNamespace(get_default=lambda: default),
        ngrok=types.SimpleNamespace(connect=connect, disconnect=seen.closed.append),
    )
    monkeypatch.setitem(sys.modules, "pyngrok", fake)
    return seen


def test_a_tunnel_leads_to_a_server_without_encryption(ngrok):
    async def client(config: dict[str, Any]) -> Any:
        assert config == {"url": "https://public/p"}
        return await post("/x")({"url": f"{ngrok.opened[0]}/p"})

    tunnel = kopf.WebhookNgrokTunnel(addr="127.0.0.1", path="/p", token="t", region="eu", binary="/n")
    assert serve(tunnel, client)[0] == 200
    assert ngrok.closed == ["https://public"]
    assert vars(ngrok.default) == {"region": "eu", "ngrok_path": "/n", "auth_token": "t"}


def test_the_server_of_a_tunnel_is_reached_only_from_the_same_machine(ngrok, caplog):
    caplog.set_level("DEBUG")

    async def client(config: dict[str, Any]) -> Any:
        return config["url"]

    assert serve(kopf.WebhookNgrokTunnel(), client) == "https://public"
    assert re.search(r"Listening for webhooks at http://127\.0\.0\.1:\d+$", caplog.text, re.M)
    assert vars(ngrok.default) == {"region": "us", "ngrok_path": "/usual", "auth_token": None}


@pytest.mark.parametrize(
    "options, listening, accessing",
    [
        ({}, r"https://\*:{}/p", r"https://localhost:{}/p"),
        ({"insecure": True}, r"http://\*:{}/p", r"http://localhost:{}/p"),
        ({"addr": "0.0.0.0"}, r"https://0\.0\.0\.0:{}/p", r"https://127\.0\.0\.1:{}/p"),
        ({"addr": "127.0.0.1", "host": "h"}, r"https://127\.0\.0\.1:{}/p", r"https://h:{}/p"),
    ],
)
def test_both_addresses_of_a_server_are_logged(caplog, options, listening, accessing):
    caplog.set_level("DEBUG")

    async def client(config: dict[str, Any]) -> Any:
        return config["url"]

    url = serve(kopf.WebhookServer(path="/p", **options), client)
    port = url.removesuffix("/p").rpartition(":")[2]
    assert re.search(f"Listening for webhooks at {listening.format(port)}$", caplog.text, re.M)
    assert re.search(f"Accessing the webhooks at {accessing.format(port)}$", caplog.text, re.M)


@pytest.mark.parametrize("cls", [kopf.WebhookAutoServer, kopf.WebhookAutoTunnel])
def test_the_guess_of_the_host_can_be_replaced(cls, caplog):
    caplog.set_level("DEBUG")

    class Guessing(cls):
        async def guess_host(self):
            return "pods.see.me"

    async def client(config: dict[str, Any]) -> Any:
        return config["url"]

    assert serve(Guessing(addr="127.0.0.1"), client).startswith("https://pods.see.me:")
    assert "Cluster detection found the hostname: pods.see.me" in caplog.text


def test_without_an_operator_the_host_is_not_known(ngrok, caplog):
    caplog.set_level("DEBUG")

    async def client(config: dict[str, Any]) -> Any:
        return config["url"]

    assert asyncio.run(kopf.WebhookAutoServer().guess_host()) is None
    assert serve(kopf.WebhookAutoServer(addr="127.0.0.1"), client).startswith("https://127.0.0.1:")
    assert "Cluster detection failed, running a simple local server." in caplog.text
    assert serve(kopf.WebhookAutoTunnel(), client) == "https://public"
    assert "Cluster detection failed, using an ngrok tunnel." in caplog.text


@pytest.mark.parametrize(
    "certificate, version, expected",
    [
        ({"subject": ((("commonName", "k3s"),),)}, "", local_clusters.LocalCluster.K3S),
        ({"subject": ((("organizationName", "k3s"),),)}, "", local_clusters.LocalCluster.K3S),
        ({"issuer": ((("commonName", "k3s-server-ca"),),)}, "", local_clusters.LocalCluster.K3S),
        ({"subject": ((("commonName", "minikube"),),)}, "", local_clusters.LocalCluster.MINIKUBE),
        ({"issuer": ((("commonName", "minikubeCA"),),)}, "", local_clusters.LocalCluster.MINIKUBE),
        (
            {"subjectAltName": (("DNS", "docker-for-desktop"),)},
            "",
            local_clusters.LocalCluster.DOCKER_DESKTOP,
        ),
        (None, "v1.30.1+k3s1", local_clusters.LocalCluster.K3S),
        ({"subject": ((("commonName", "kube-apiserver"),),)}, "v1.30.1", None),
    ],
)
def test_local_clusters_are_recognised(certificate, version, expected):
    assert local_clusters.identify(certificate, version) == expected


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no second loopback address")
def test_a_closed_server_has_neither_a_port_nor_connections():
    # A separate address: another process can get a port of the usual one, or the connection itself can.
    address = "127.0.0.2"

    async def main() -> None:
        async with kopf.WebhookServer(addr=address, insecure=True) as server:
            config = await anext(aiter(server(respond)))
            port = int(config["url"].rpartition(":")[2])
            reader, writer = await asyncio.open_connection(address, port)
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert await reader.readuntil(b"\r\n\r\n")
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(address, port)
        await reader.read()  # until the end of the connection
        writer.close()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_requests_are_polled_although_errors_of_the_server_cannot_be_logged(monkeypatch):
    native = pytest.importorskip("kopf._kopf")
    if not hasattr(native, "inject_panics"):
        pytest.skip("the native module is built without the feature `testing`")
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)

    def fail(record: Any) -> bool:
        raise LookupError("no such field")

    logger = logging.getLogger("kopf._core.engines.admission")
    server = native.WebhookServer(addr="127.0.0.1", insecure=True)
    responses = []
    config = {"url": f"http://127.0.0.1:{server.port}"}
    logger.addFilter(fail)
    try:
        native.inject_panics("webhook")
        with pytest.raises((http.client.HTTPException, OSError)):
            asyncio.run(post("/first")(config))
        client = threading.Thread(target=lambda: responses.append(asyncio.run(post("/second")(config))))
        client.start()
        received = []
        deadline = time.monotonic() + 30
        while not received and time.monotonic() < deadline:
            ready, _, _ = select.select([server.fileno()], [], [], 1)
            received = server.poll() if ready and client.is_alive() else []
    finally:
        logger.removeFilter(fail)
    assert [call.webhook for call in received] == ["second"]
    received[0].respond({})
    client.join(30)
    assert responses[0][0] == 200 and len(unraisable) == 1
    server.join()
