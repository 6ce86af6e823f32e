"""The readiness of an operator whose webhook server has an expired certificate."""

import datetime
import ssl
import threading
import time
import urllib.error
import urllib.request

import kopf
import pytest
import trustme

from tests.behaviours.metrics.monitored_operator import free_address

pytestmark = pytest.mark.kopf_embedded_only

LIMIT = 60.0


def readiness(url: str) -> str:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=LIMIT) as response:
            return response.read().decode()
    except urllib.error.HTTPError as e:
        return e.read().decode()
    except urllib.error.URLError:
        return ""


def wait_for(url: str, expected: str) -> None:
    deadline = time.monotonic() + LIMIT
    while not (found := readiness(url)).startswith(expected):
        assert time.monotonic() < deadline, found
        threading.Event().wait(0.02)


@pytest.mark.parametrize("has_context", [False, True])
def test_an_expired_certificate_makes_the_operator_unready_until_it_is_replaced(
    cluster, monkeypatch, tmp_path, has_context
):
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    authority, url, stop = trustme.CA(), f"http://{free_address()}", threading.Event()
    certfile, pkeyfile = tmp_path / "cert.pem", tmp_path / "key.pem"

    def issue(year: int) -> None:
        not_after = datetime.datetime(year, 1, 1, tzinfo=datetime.UTC)
        issued = authority.issue_cert("localhost", not_after=not_after)
        pkeyfile.write_bytes(issued.private_key_pem.bytes())
        certfile.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))

    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(kopf.login_with_kubeconfig)

    @kopf.on.startup(registry=registry)
    def configure(settings: kopf.OperatorSettings, **_):
        settings.admission.server = kopf.WebhookServer(
            addr="127.0.0.1",
            certfile=certfile,
            pkeyfile=pkeyfile,
            context=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if has_context else None,
            file_check_interval=0.05,
        )

    @kopf.on.validate("secrets", registry=registry)
    def check(**_):
        pass

    issue(2020)
    options = {"registry": registry, "clusterwide": True, "standalone": True, "stop_flag": stop}
    thread = threading.Thread(target=kopf.run, kwargs=options | {"liveness_endpoint": f"{url}/healthz"})
    thread.start()
    try:
        wait_for(url, "[-]webhooks failed: the certificate of the webhook server has expired at 2020-01-01")
        issue(2120)
        wait_for(url, "ok")
    finally:
        stop.set()
        thread.join(LIMIT)
    assert not thread.is_alive()
