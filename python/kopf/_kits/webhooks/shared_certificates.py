"""Certificates that all replicas of an operator serve: the content of their Secret, and when it is renewed.

A renewal has three steps, so that the API server trusts every certificate that is served:

1. The next certificate is announced: the Secret has it in addition, and `ca.crt` has its authority, too.
   The operator publishes that, and serves the current certificate.
2. After `STEP`, the next certificate becomes the current one, and the replicas serve it one by one. The
   authority of the previous one stays in `ca.crt`.
3. After `STEP`, the authority of the previous certificate is removed.

The module performs no requests. Times are in seconds since the epoch.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import hashlib
import ipaddress
import re
import ssl
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from kopf._runtime import bridge
from kopf._runtime.errors import OperationalError

CERTIFICATE, KEY, AUTHORITIES = "tls.crt", "tls.key", "ca.crt"
NEXT_CERTIFICATE, NEXT_KEY = "next.crt", "next.key"

GENERATED = "kopf.dev/generated-certificate"
"""The annotation with the fingerprint of the certificate that Kopf has generated. Kopf renews no others."""
STEPPED = "kopf.dev/certificate-renewal-step"
"""The annotation with the time of the last step of a renewal, until the renewal is complete."""

DAY = 24 * 3600.0
RENEWAL = 90 * DAY
"""The time before the expiry at which the next certificate is generated: at most a third of the validity."""
STEP = DAY
"""The time between two steps of a renewal: at most half of what is left of the current certificate."""

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)

Build = Callable[[], tuple[bytes, bytes]]
"""Makes a self-signed certificate and its key, both in PEM."""


class CertificateSecretError(OperationalError):
    """The Secret of a webhook server cannot be used; the message has instructions."""


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its key, both in PEM."""

    certificate: bytes
    key: bytes = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """The hash of the certificate."""
        return hashlib.sha256(_first(self.certificate)).hexdigest()

    @property
    def names(self) -> list[str]:
        """The names and addresses for which the certificate is."""
        return [str(name) for _, name in self._describe().get("subjectAltName", ())]

    @property
    def validity(self) -> tuple[float, float]:
        """The first and the last time of the validity."""
        described = self._describe()
        begin, end = str(described["notBefore"]), str(described["notAfter"])
        return ssl.cert_time_to_seconds(begin), ssl.cert_time_to_seconds(end)

    @property
    def renewal(self) -> float:
        """The time at which the next certificate is to be generated."""
        begin, end = self.validity
        return end - min(RENEWAL, (end - begin) / 3)

    def covers(self, name: str) -> bool:
        """Whether the certificate is for the name or address."""
        return any(_is_covered(name.lower(), pattern.lower()) for pattern in self.names)

    def _describe(self) -> Mapping[str, Any]:
        described = bridge.describe_certificate(_first(self.certificate))
        if described is None:
            raise ValueError("the certificate cannot be decoded")
        return described


@dataclass(frozen=True)
class SharedCertificate:
    """The content of a Secret."""

    current: KeyPair
    authorities: bytes
    following: KeyPair | None = None
    stepped: float | None = None
    """The time of the last step of a renewal; None if there is none."""
    is_generated: bool = False
    version: str | None = field(default=None, compare=False)
    """The resource version of the Secret; None if it is not written yet."""

    @classmethod
    def generated(cls, pair: KeyPair) -> Self:
        """The content with a certificate that is its own authority."""
        return cls(pair, _merged(pair.certificate), is_generated=True)

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Self:
        """The content of a Secret.

        Raises:
            CertificateSecretError: It lacks a key, or the content of a key is no certificate.
        """
        metadata = body["metadata"]
        place = f"the Secret {metadata.get('namespace')}/{metadata.get('name')}"
        found = _decode(body, place)
        missing = [name for name in (CERTIFICATE, KEY, AUTHORITIES) if not found.get(name)]
        if missing:
            raise CertificateSecretError(
                f"The webhook server needs {CERTIFICATE}, {KEY} and {AUTHORITIES}, but {place} has no"
                f" {' and no '.join(missing)}. If the Secret is not in use, delete it: the operator"
                " creates it."
            )
        current = KeyPair(found[CERTIFICATE], found[KEY])
        annotations = metadata.get("annotations") or {}
        following, stepped = None, None
        try:
            if annotations.get(STEPPED):
                stepped = datetime.datetime.fromisoformat(annotations[STEPPED]).timestamp()
                if found.get(NEXT_CERTIFICATE) and found.get(NEXT_KEY):
                    following = KeyPair(found[NEXT_CERTIFICATE], found[NEXT_KEY])
            for pair in filter(None, (current, following)):
                _ = pair.validity  # certificates that cannot be decoded are errors here
            return cls(
                current,
                found[AUTHORITIES],
                following,
                stepped,
                annotations.get(GENERATED) == current.fingerprint,
                metadata.get("resourceVersion"),
            )
        except ValueError as error:
            raise CertificateSecretError(f"The certificates in {place} cannot be used: {error}.") from None

    def check(self, place: str, names: Collection[str]) -> None:
        """Check that the certificate is for these names.

        Raises:
            CertificateSecretError: It is not.
        """
        absent = [name for name in names if not self.current.covers(name)]
        if absent:
            advice = (
                "Delete the Secret, so that the operator creates it again, or use another one"
                if self.is_generated
                else "Add the name to the certificate"
            )
            raise CertificateSecretError(
                f"The certificate in the Secret {place} is for {', '.join(self.current.names)}, not for"
                f" {', '.join(absent)}. {advice}."
            )

    def renewed(self, build: Build, now: float) -> SharedCertificate | None:
        """The next content, if it is time for it."""
        if not self.is_generated:
            return None
        if self.stepped is None:
            return self.announcing(build, now) if now >= self.current.renewal else None
        left = self.current.validity[1] - self.stepped
        if now < self.stepped + min(STEP, left / 2):
            return None
        if self.following is not None:
            return self._serving(self.following, now)
        return SharedCertificate.generated(self.current)

    def announcing(self, build: Build, now: float) -> SharedCertificate:
        """The content with a new certificate: announced, as long as the current one is valid."""
        pair = KeyPair(*build())
        if now >= self.current.validity[1]:
            return self._serving(pair, now)
        authorities = _merged(self.authorities, pair.certificate, now=now)
        return SharedCertificate(self.current, authorities, pair, now, is_generated=True)

    def _serving(self, pair: KeyPair, now: float) -> SharedCertificate:
        authorities = _merged(self.authorities, pair.certificate, now=now)
        return SharedCertificate(pair, authorities, None, now, is_generated=True)

    def to_patch(self) -> dict[str, Any]:
        """The merge patch that brings a Secret to this content."""
        following = self.following
        data = {
            CERTIFICATE: _encode(self.current.certificate),
            KEY: _encode(self.current.key),
            AUTHORITIES: _encode(self.authorities),
            NEXT_CERTIFICATE: _encode(following.certificate) if following is not None else None,
            NEXT_KEY: _encode(following.key) if following is not None else None,
        }
        stepped = None
        if self.stepped is not None:
            stepped = datetime.datetime.fromtimestamp(int(self.stepped), datetime.UTC).isoformat()
        annotations = {GENERATED: self.current.fingerprint, STEPPED: stepped}
        return {"metadata": {"annotations": annotations}, "data": data}

    def to_secret(self, name: str, namespace: str | None) -> dict[str, Any]:
        """The Secret with this content."""
        patch = self.to_patch()
        annotations = {key: value for key, value in patch["metadata"]["annotations"].items() if value}
        metadata = {"name": name, "annotations": annotations}
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": metadata | ({"namespace": namespace} if namespace is not None else {}),
            "data": {key: value for key, value in patch["data"].items() if value is not None},
        }


def _decode(body: Mapping[str, Any], place: str) -> dict[str, bytes]:
    try:
        return {key: base64.b64decode(value) for key, value in (body.get("data") or {}).items()}
    except binascii.Error:
        raise CertificateSecretError(f"The content of {place} cannot be decoded.") from None


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _first(pem: bytes) -> bytes:
    """The first certificate, in DER."""
    found = next(_certificates(pem), None)
    if found is None:
        raise ValueError("there is no certificate in the PEM format")
    return found


def _certificates(pem: bytes) -> Iterator[bytes]:
    for block in _PEM.findall(pem):
        yield ssl.PEM_cert_to_DER_cert(block.decode("ascii"))


def _merged(*authorities: bytes, now: float | None = None) -> bytes:
    """All different certificates, in PEM, except for those that have expired."""
    found = dict.fromkeys(certificate for pem in authorities for certificate in _certificates(pem))
    kept = [ssl.DER_cert_to_PEM_cert(one) for one in found if now is None or _end(one) > now]
    return "".join(kept).encode("ascii")


def _end(certificate: bytes) -> float:
    described = bridge.describe_certificate(certificate)
    return ssl.cert_time_to_seconds(str(described["notAfter"])) if described is not None else 0.0


def _is_covered(name: str, pattern: str) -> bool:
    try:
        return ipaddress.ip_address(name) == ipaddress.ip_address(pattern)
    except ValueError:
        first, _, rest = name.partition(".")
        return name == pattern or (bool(first and rest) and pattern == f"*.{rest}")
