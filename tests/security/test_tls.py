"""TLS verification of API servers, and of the clients of webhooks.

The server counts completed handshakes: credentials are never sent to an untrusted server.
"""

import contextlib
import datetime
import http.client
import http.server
import pathlib
import socket
import ssl
import subprocess
import sys
import threading

import kopf
import pytest
import trustme
from kopf.testing import Cluster

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)
TOKEN = "the-token-that-only-friends-see"
OPERATOR = """
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.networking.error_backoffs = []

@kopf.on.login()
def login(**_):
    return kopf.ConnectionInfo(**{info!r})

@kopf.on.event("pods")
def f(**_):
    pass
"""


class Impostor:
    """An HTTPS server that records the headers of clients that trust it."""

    def __init__(self, leaf: trustme.LeafCert) -> None:
        self.tokens: list[str] = []
        self.handshakes: list[str] = []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        leaf.configure_cert(self._context)
        impostor = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                impostor.tokens.append(self.headers.get("Authorization", ""))
                self.send_error(403)

        class Server(http.server.ThreadingHTTPServer):
            def finish_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]
                try:
                    request.settimeout(30)
                    with impostor._context.wrap_socket(request, server_side=True) as encrypted:
                        impostor.handshakes.append("")
                        super().finish_request(encrypted, client_address)
                except OSError as e:
                    impostor.handshakes.append(str(e))

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def run_operator(folder: pathlib.Path, **info: object) -> str:
    """The output of an operator that cannot begin: there is no API behind that server."""
    script = folder / "operator.py"
    script.write_text(OPERATOR.format(info={"token": TOKEN, **info}))
    command = [sys.executable, "-m", "kopf", "run", "--standalone", "-A", str(script)]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90)
    assert done.returncode == 1, done.stderr
    return done.stderr


@pytest.fixture
def friend() -> trustme.CA:
    return trustme.CA()


CASES = {
    "another authority": (lambda ca: trustme.CA().issue_cert("127.0.0.1"), "UnknownIssuer"),
    "another name": (
        lambda ca: ca.issue_cert("example.com", "10.0.0.1"),
        "not valid for name|NotValidForName",
    ),
    "an expired certificate": (
        lambda ca: ca.issue_cert("127.0.0.1", not_before=NOW - 3 * DAY, not_after=NOW - DAY),
        "expired|Expired",
    ),
    "a certificate of the future": (
        lambda ca: ca.issue_cert("127.0.0.1", not_before=NOW + DAY, not_after=NOW + 3 * DAY),
        "not valid yet|NotValidYet",
    ),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", CASES)
def test_servers_that_cannot_be_trusted_get_no_credentials(case, friend, tmp_path):
    make, words = CASES[case]
    friend.cert_pem.write_to_path(tmp_path / "ca.pem")
    with contextlib.closing(Impostor(make(friend))) as impostor:
        output = run_operator(
            tmp_path, server=f"https://127.0.0.1:{impostor.port}", ca_path=str(tmp_path / "ca.pem")
        )
        assert impostor.handshakes and "" not in impostor.handshakes
        assert impostor.tokens == []
    assert any(word in output for word in words.split("|")), output
    assert TOKEN not in output


@pytest.mark.timeout(120)
def test_without_an_authority_those_of_the_system_count(friend, tmp_path):
    with contextlib.closing(Impostor(friend.issue_cert("127.0.0.1"))) as impostor:
        output = run_operator(tmp_path, server=f"https://127.0.0.1:{impostor.port}")
        assert impostor.tokens == []
    assert "UnknownIssuer" in output, output


@pytest.mark.timeout(120)
@pytest.mark.parametrize("trusted", ["by its authority", "because nothing is verified"])
def test_credentials_go_to_those_who_are_trusted(trusted, friend, tmp_path):
    friend.cert_pem.write_to_path(tmp_path / "ca.pem")
    named = trusted == "by its authority"
    info = {"ca_path": str(tmp_path / "ca.pem")} if named else {"insecure": True}
    leaf = friend.issue_cert("127.0.0.1" if named else "example.com")
    with contextlib.closing(Impostor(leaf)) as impostor:
        run_operator(tmp_path, server=f"https://127.0.0.1:{impostor.port}", **info)
        assert set(impostor.tokens) == {f"Bearer {TOKEN}"}


def test_the_embedded_server_listens_on_loopback_only():
    with Cluster() as cluster:
        port = int(cluster.url.rsplit(":", 1)[1])
        tables = [pathlib.Path("/proc/net/tcp"), pathlib.Path("/proc/net/tcp6")]
        lines = [
            line.split() for table in tables if table.exists() for line in table.read_text().splitlines()
        ]
        listening = [
            it[1] for it in lines if len(it) > 3 and it[3] == "0A" and it[1].endswith(f":{port:04X}")
        ]
    assert listening == [f"0100007F:{port:04X}"]


def test_the_embedded_server_rejects_requests_without_the_token():
    with Cluster() as cluster:
        context = ssl._create_unverified_context()
        port = int(cluster.url.rsplit(":", 1)[1])
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=30)
        for headers in ({}, {"Authorization": "Bearer another"}, {"Authorization": "Basic YTpi"}):
            connection.request("GET", "/api/v1/secrets", headers=headers)
            response = connection.getresponse()
            response.read()
            assert response.status in (401, 403)
        connection.close()


# --- Clients of webhooks.


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "who", ["no certificate", "a stranger", "one with an expired certificate", "a friend"]
)
def test_only_those_with_a_certificate_may_call_if_that_is_required(who, friend, tmp_path):
    import asyncio

    friend.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    dates = {"not_before": NOW - 3 * DAY, "not_after": NOW - DAY}
    leaves = {
        "a stranger": trustme.CA().issue_cert("127.0.0.1"),
        "one with an expired certificate": friend.issue_cert("127.0.0.1", **dates),
        "a friend": friend.issue_cert("127.0.0.1"),
    }
    if who in leaves:
        leaves[who].configure_cert(context)
    seen = []

    async def answer(request, **kwargs):
        seen.append(kwargs["sslpeer"])
        return {"response": {"allowed": True}}

    def ask(port: int) -> int:
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=30)
        try:
            connection.request("POST", "/x", "{}")
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    async def serve() -> int:
        server = kopf.WebhookServer(
            addr="127.0.0.1", verify_mode=ssl.CERT_REQUIRED, verify_cafile=tmp_path / "ca.pem"
        )
        async with server:
            async for config in server(answer):
                port = int(config["url"].rsplit(":", 1)[1])
                return await asyncio.to_thread(ask, port)
        return -1

    status = asyncio.run(serve())
    assert (status, len(seen)) == ((200, 1) if who == "a friend" else (0, 0))
