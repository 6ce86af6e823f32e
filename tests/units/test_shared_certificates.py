"""The content of Secrets with certificates of webhook servers, and the steps of their renewal."""

from __future__ import annotations

import base64
import ssl
from typing import Any

import kopf
import pytest
from kopf._kits.webhooks import shared_certificates
from kopf._kits.webhooks.shared_certificates import (
    STEP,
    CertificateSecretError,
    KeyPair,
    SharedCertificate,
)

pytest.importorskip("kopf._kopf", reason="the native module is not built")

HOST = "ours.default.svc"


def build() -> tuple[bytes, bytes]:
    return kopf.WebhookServer.build_certificate([HOST, "127.0.0.1"])


def written(content: SharedCertificate) -> dict[str, Any]:
    """The Secret as the API server returns it."""
    body = content.to_secret("ours", "default")
    body["metadata"]["resourceVersion"] = "1"
    return body


def authorities(content: SharedCertificate) -> list[bytes]:
    blocks = content.authorities.decode().split("-----END CERTIFICATE-----\n")[:-1]
    return [ssl.PEM_cert_to_DER_cert(f"{block}-----END CERTIFICATE-----\n") for block in blocks]


def der(pair: KeyPair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pair.certificate.decode())


@pytest.fixture
def content():
    return SharedCertificate.generated(KeyPair(*build()))


def test_the_secret_is_of_the_type_of_certificates_and_is_read_as_it_was_written(content):
    body = written(content)
    assert (body["kind"], body["type"]) == ("Secret", "kubernetes.io/tls")
    assert sorted(body["data"]) == ["ca.crt", "tls.crt", "tls.key"]
    assert SharedCertificate.parse(body) == content
    assert SharedCertificate.parse(body).version == "1"
    announced = content.announcing(build, 1.0e9)
    assert SharedCertificate.parse(written(announced)) == announced
    assert sorted(written(announced)["data"]) == ["ca.crt", "next.crt", "next.key", "tls.crt", "tls.key"]


def test_the_next_certificate_is_trusted_before_it_is_served_and_the_previous_one_for_a_while(content):
    due = content.current.renewal
    assert content.renewed(build, due - 1) is None
    announced = content.renewed(build, due + 0.5)
    assert announced is not None and announced.following is not None
    assert announced.current == content.current, "it is served until the next one is trusted"
    assert authorities(announced) == [der(content.current), der(announced.following)]
    read = SharedCertificate.parse(written(announced))
    assert read.renewed(build, due + STEP - 1) is None
    renewed = read.renewed(build, due + STEP + 1)
    assert renewed is not None and renewed.following is None
    assert renewed.current == announced.following
    assert authorities(renewed) == authorities(announced), "some replicas serve the previous one"
    patch = renewed.to_patch()
    assert patch["data"]["next.crt"] is None and patch["data"]["next.key"] is None
    read = SharedCertificate.parse(written(renewed))
    assert read.renewed(build, due + 2 * STEP) is None
    complete = read.renewed(build, due + 2 * STEP + 2)
    assert complete == SharedCertificate.generated(announced.following)
    assert complete.to_patch()["metadata"]["annotations"][shared_certificates.STEPPED] is None


def test_authorities_that_have_expired_are_removed(content):
    end = content.current.validity[1]
    announced = content.announcing(build, end - 10)
    renewed = announced.renewed(build, end + 10)
    assert renewed is not None and renewed.current == announced.following
    assert authorities(renewed) == []  # in this test, the next certificate expires at the same time


def test_a_certificate_with_little_time_left_is_announced_for_half_of_it(content):
    end = content.current.validity[1]
    announced = content.renewed(build, end - 100)
    assert announced is not None and announced.following is not None
    assert announced.renewed(build, end - 51) is None
    renewed = announced.renewed(build, end - 49)
    assert renewed is not None and renewed.current == announced.following


def test_an_expired_certificate_is_replaced_at_once(content):
    renewed = content.renewed(build, content.current.validity[1] + 1)
    assert renewed is not None and renewed.following is None
    assert renewed.current != content.current


def test_certificates_of_others_are_not_renewed(content):
    body = written(content)
    body["metadata"]["annotations"] = {}
    read = SharedCertificate.parse(body)
    assert not read.is_generated
    assert read.renewed(build, content.current.validity[1] + 1) is None
    # Also if the issuer of another certificate has kept the annotation.
    body = written(content)
    certificate, key = build()
    body["data"]["tls.crt"] = base64.b64encode(certificate).decode()
    body["data"]["tls.key"] = base64.b64encode(key).decode()
    assert not SharedCertificate.parse(body).is_generated


@pytest.mark.parametrize("key", ["tls.crt", "tls.key", "ca.crt"])
def test_a_secret_without_a_key_is_reported(content, key):
    body = written(content)
    del body["data"][key]
    with pytest.raises(CertificateSecretError, match=f"the Secret default/ours has no {key}. If"):
        SharedCertificate.parse(body)


@pytest.mark.parametrize(
    "value", [b"no PEM", b"-----BEGIN CERTIFICATE-----\nQUFB\n-----END CERTIFICATE-----\n"]
)
def test_a_secret_with_something_else_is_reported(content, value):
    body = written(content)
    body["data"]["tls.crt"] = base64.b64encode(value).decode()
    with pytest.raises(CertificateSecretError, match="in the Secret default/ours cannot be used: "):
        SharedCertificate.parse(body)
    body["data"] = {"tls.crt": "-"}
    with pytest.raises(CertificateSecretError):
        SharedCertificate.parse(body)


def test_a_certificate_for_other_names_is_reported(content):
    content.check("default/ours", [HOST, "127.0.0.1", HOST.upper()])
    with pytest.raises(CertificateSecretError) as raised:
        content.check("default/ours", [HOST, "theirs.default.svc"])
    assert str(raised.value) == (
        f"The certificate in the Secret default/ours is for {HOST}, 127.0.0.1, not for theirs.default.svc."
        " Delete the Secret, so that the operator creates it again, or use another one."
    )


def test_patterns_cover_one_part_of_a_name():
    pair = KeyPair(*kopf.WebhookServer.build_certificate(["*.default.svc", "::1"]))
    assert pair.covers(HOST) and pair.covers("0:0:0:0:0:0:0:1")
    assert not pair.covers("default.svc") and not pair.covers("a.b.default.svc")


def test_keys_are_not_shown(content):
    secret = content.current.key.decode().splitlines()[1]
    assert secret not in repr(content) and secret not in repr(content.current)
