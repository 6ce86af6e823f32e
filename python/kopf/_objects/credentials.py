"""Credentials for a cluster.

Secrets are never in `repr()`, hence not in logs and tracebacks.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import os
import ssl
import warnings
from collections.abc import ItemsView, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from kopf._objects.dataclass_methods import FrozenDataclassMethods

PathT = str | bytes | os.PathLike[str] | os.PathLike[bytes]
DataT = str | bytes

_SECRETS = frozenset({"password", "token", "private_key_data"})


class LoginError(Exception):
    """There is no way to log in to the cluster."""


class MissingInKubeconfigError(LoginError, KeyError):
    """A kubeconfig refers to what is not in it. In Kopf 1.45, it is a `KeyError`."""

    __str__ = Exception.__str__


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class KubeContext(FrozenDataclassMethods):
    """The base of all kinds of credentials."""

    server: str
    priority: int = 0
    default_namespace: str | None = None
    expiration: datetime.datetime | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ConnectionInfo(KubeContext):
    """The server and the credentials for it.

    The `*_data` fields are PEM or base64 of PEM. Of those with the highest priority, any can be used.
    An expiration without a timezone is in UTC. Both a path and data for the same thing raise `ValueError`.

    Args:
        server: The URL of the API server.
        priority: The credentials with the highest priority are used.
        default_namespace: The namespace of the context, if there is one.
        expiration: The time after which the credentials are not used; None: no limit.
        ca_path: The path of the certificates of the server's authorities.
        ca_data: These certificates themselves.
        insecure: Whether the certificate of the server is not verified.
        username: The name for basic authentication.
        password: The password for basic authentication.
        scheme: The scheme of the header `Authorization`; None: `Bearer`.
        token: The token of the header `Authorization`.
        certificate_path: The path of the client certificate.
        certificate_data: The client certificate itself.
        private_key_path: The path of its private key.
        private_key_data: The private key itself.
        proxy_url: The URL of the proxy; None: no proxy, unless by `trust_env`.
        trust_env: Whether to use the proxies of the environment (`HTTPS_PROXY`, `NO_PROXY`).
    """

    ca_path: PathT | None = None
    ca_data: DataT | None = None
    insecure: bool | None = None
    username: str | None = None
    password: str | None = None
    scheme: str | None = None
    token: str | None = None
    certificate_path: PathT | None = None
    certificate_data: DataT | None = None
    private_key_path: PathT | None = None
    private_key_data: DataT | None = None
    proxy_url: str | None = None
    trust_env: bool = False

    def __post_init__(self) -> None:
        if self.ca_path and self.ca_data:
            raise ValueError("Both CA path & data are set. Need only one.")
        if self.certificate_path and self.certificate_data:
            raise ValueError("Both certificate path & data are set. Need only one.")
        if self.private_key_path and self.private_key_data:
            raise ValueError("Both private key path & data are set. Need only one.")

    def __repr__(self) -> str:
        shown = {f.name: _without_password(getattr(self, f.name)) for f in fields(self)}
        texts = [
            f"{name}=***" if name in _SECRETS and value is not None else f"{name}={value!r}"
            for name, value in shown.items()
        ]
        return f"{type(self).__name__}({', '.join(texts)})"

    def as_http_headers(self) -> dict[str, str]:
        """The headers that authorise a request: by user and password, else by the token; maybe none."""
        if self.username and self.password:
            if ":" in self.username:
                raise ValueError("A username with a colon is impossible in the basic HTTP authentication.")
            pair = base64.b64encode(f"{self.username}:{self.password}".encode()).decode("ascii")
            return {"Authorization": f"Basic {pair}"}
        if self.scheme and self.token:
            return {"Authorization": f"{self.scheme} {self.token}"}
        if self.scheme:
            return {"Authorization": f"{self.scheme}"}
        if self.token:
            return {"Authorization": f"Bearer {self.token}"}
        return {}

    def as_aiohttp_basic_auth(self) -> Any:
        """Deprecated: always None."""
        warnings.warn(
            "as_aiohttp_basic_auth() is deprecated, stop calling it. "
            "The basic auth already comes from as_http_headers().",
            DeprecationWarning,
            stacklevel=2,
        )
        return None

    def as_ssl_context(self) -> ssl.SSLContext:
        """The TLS context with the CA (else those of the system) and the client certificate, if any."""
        context = ssl.create_default_context(
            purpose=ssl.Purpose.SERVER_AUTH,
            cafile=os.fsdecode(self.ca_path) if self.ca_path else None,
            cadata=_decode_pem(self.ca_data).decode("ascii") if self.ca_data else None,
        )
        has_certificate = self.certificate_path or self.certificate_data
        has_private_key = self.private_key_path or self.private_key_data
        if has_certificate and has_private_key:
            with (
                _as_file(self.certificate_path, self.certificate_data) as certificate,
                _as_file(self.private_key_path, self.private_key_data) as private_key,
            ):
                context.load_cert_chain(certfile=certificate, keyfile=private_key)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AiohttpSession(KubeContext):
    """A session of aiohttp made by the user, with everything needed for authentication already in it.

    Args:
        server: The URL of the API server.
        priority: The credentials with the highest priority are used.
        default_namespace: The namespace of the context, if there is one.
        expiration: The time after which the session is not used; None: no limit.
        aiohttp_session: The session.
    """

    aiohttp_session: Any = field()


VaultKey = str
"""The id of the login handler by which the credentials came, or any other key."""


class Vault:
    """The credentials that are used instead of a login, by arbitrary keys; for embedded operators."""

    def __init__(self, source: Mapping[str, KubeContext] | None = None, /) -> None:
        super().__init__()
        self._items = dict(source or {})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({sorted(self._items)})"

    def items(self) -> ItemsView[str, KubeContext]:
        """The keys and the credentials."""
        return self._items.items()

    async def populate(self, source: Mapping[str, KubeContext], /) -> None:
        """Add credentials."""
        self._items.update(source)


class OnlyCredentials(Vault):
    """The credentials of an operator that must not connect to any other cluster, as in `kopf dev`.

    Login handlers are called, since they also set up client libraries; their credentials are not used.
    """


def _without_password(value: Any) -> Any:
    """An address with `***` in place of the password; any other value unchanged."""
    if not isinstance(value, str) or "://" not in value or "@" not in value:
        return value
    scheme, rest = value.split("://", 1)
    userinfo, host = rest.rsplit("@", 1)
    return f"{scheme}://{userinfo.split(':', 1)[0]}:***@{host}" if ":" in userinfo else value


def _decode_pem(data: DataT) -> bytes:
    raw = data.encode("ascii") if isinstance(data, str) else data
    return raw if raw.startswith(b"-----BEGIN ") else base64.b64decode(raw)


# Python's TLS loads certificates of clients only from files.
@contextlib.contextmanager
def _as_file(path: PathT | None, data: DataT | None) -> Iterator[str]:
    if path:
        yield os.fsdecode(path)
        return
    import tempfile

    with tempfile.NamedTemporaryFile(buffering=0) as file:
        file.write(_decode_pem(data or b""))
        yield file.name
