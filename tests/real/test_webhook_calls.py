"""The embedded API server calls webhooks as a real one does.

Each flow of `webhooks/` runs on both servers, with webhooks in the test process. The requests that the
webhooks get and the answers that the client gets are the same.
"""

import concurrent.futures
import contextlib
import datetime
import ipaddress
import os
import pathlib
import ssl
import tempfile

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from kopf.testing import Cluster

from tests.conformance.generative.client import Client
from tests.real.webhooks import admission, conversion
from tests.real.webhooks.differences import DIFFERENCES
from tests.real.webhooks.flow import Flow
from tests.support.webhooks import WebhookServer

pytestmark = pytest.mark.timeout(300)

FLOWS = {"admission": admission.run, "conversion": conversion.run}
FEWEST_STEPS = {"admission": 300, "conversion": 150}
DAY = datetime.timedelta(days=1)
NOW = datetime.datetime.now(datetime.UTC)


def outcomes(name, kubeconfig):
    """The outcomes of a flow on one server by their steps."""
    with contextlib.closing(WebhookServer()) as webhook, contextlib.closing(Client(kubeconfig)) as client:
        flow = Flow(client, webhook)
        FLOWS[name](flow)
    return flow.outcomes


@pytest.mark.parametrize("name", FLOWS)
def test_flows_with_webhooks(name, control_plane):
    with Cluster(access=True) as embedded, concurrent.futures.ThreadPoolExecutor(2) as pool:
        kubeconfigs = (control_plane.write_kubeconfig(), pathlib.Path(embedded.kubeconfig))
        real, ours = pool.map(outcomes, (name, name), kubeconfigs)
    assert len(real) >= FEWEST_STEPS[name]
    assert list(ours) == list(real)
    different = {
        step: {"real": real[step], "embedded": ours[step]} for step in real if real[step] != ours[step]
    }
    expected = {step for flow, step in DIFFERENCES if flow == name}
    assert {step: different[step] for step in different.keys() - expected} == {}
    assert expected <= different.keys(), "a difference is mended: remove it from DIFFERENCES"


def self_signed(address="127.0.0.1", end=NOW + DAY):
    """A context with a certificate that is a CA, and the certificate, which is the bundle."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "webhook")])
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - 2 * DAY)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "pair.pem")
        pathlib.Path(path).write_bytes(private + pem)
        context.load_cert_chain(path)
    return context, pem


def by_authority(address="127.0.0.1", end=None):
    """A context with a certificate of an authority, and the authority as the bundle."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(address, not_after=end).configure_cert(context)
    return context, authority.cert_pem.bytes()


def of_a_stranger(make):
    """A context whose certificate is not in the bundle."""
    return make()[0], make()[1]


CERTIFICATES = {
    "authority": by_authority,
    "authority, another address": lambda: by_authority("127.0.0.2"),
    "authority, a host name": lambda: by_authority("webhook.example"),
    "authority, expired": lambda: by_authority(end=NOW - DAY),
    "authority, another one": lambda: of_a_stranger(by_authority),
    "self-signed": self_signed,
    "self-signed, another address": lambda: self_signed("127.0.0.2"),
    "self-signed, expired": lambda: self_signed(end=NOW - DAY),
    "self-signed, another one": lambda: of_a_stranger(self_signed),
}
ACCEPTED = {"authority", "self-signed"}


def create_with(client, webhook):
    """Create an object that a webhook matches; its answer, once the webhook is called."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    hook = {
        "name": "tls.flow.dev",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "clientConfig": webhook.client_config("/tls"),
        "rules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
        ],
        "objectSelector": {"matchLabels": {"flow": "tls"}},
    }
    made = client.send("POST", path, {"metadata": {"name": "tls"}, "webhooks": [hook]})
    assert made.code == 201, made
    body = {"metadata": {"name": "tls", "labels": {"flow": "tls"}}}
    try:
        deadline = datetime.datetime.now() + datetime.timedelta(seconds=30)
        while True:
            answer = client.send("POST", "/api/v1/namespaces/default/configmaps?dryRun=All", body)
            if answer.code != 201 or webhook.take_calls():
                return answer
            assert datetime.datetime.now() < deadline
    finally:
        client.send("DELETE", f"{path}/tls")
        # The server can call the webhook until it notices.
        while client.send("POST", "/api/v1/namespaces/default/configmaps?dryRun=All", body).code != 201:
            pass


@pytest.mark.parametrize("name", CERTIFICATES)
def test_certificates_of_webhooks(name, control_plane):
    context, bundle = CERTIFICATES[name]()
    with Cluster(access=True) as embedded, contextlib.closing(WebhookServer(context, bundle)) as webhook:
        answers = []
        for kubeconfig in (control_plane.write_kubeconfig(), pathlib.Path(embedded.kubeconfig)):
            with contextlib.closing(Client(kubeconfig)) as client:
                answers.append(create_with(client, webhook))
    real, ours = answers
    assert real.code == ours.code == (201 if name in ACCEPTED else 500)
    assert real.code == 201 or "x509: " in real.body["message"]
