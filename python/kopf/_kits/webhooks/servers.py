"""Servers for admission webhooks in the operator's process. HTTP and TLS are served by the engine."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import contextvars
import logging
import os
import pathlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable
from typing import Any, ClassVar, Self

from kopf._kits.webhooks import local_clusters, tls_proxy
from kopf._kits.webhooks.certificate_secrets import CertificateSecret
from kopf._kits.webhooks.memory_files import MemoryFiles
from kopf._kits.webhooks.request_pump import RequestPump
from kopf._kits.webhooks.shared_certificates import AUTHORITIES, CERTIFICATE, KEY
from kopf._objects.reviews import WebhookClientConfig, WebhookFn
from kopf._runtime import bridge
from kopf._runtime.admission import Admission

PathT = str | os.PathLike[str]

logger = logging.getLogger("kopf._kits.webhooks")

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
WILDCARD_ADDRESSES = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses to listen at that are no addresses to connect to, with those that are."""

OWN_CERTIFICATES = (
    "Each replica has its own certificate, and the API server trusts only one of them:"
    " pass secret='NAME' to kopf.WebhookServer."
)


class WebhookServerBase:
    """Base of servers and tunnels: they are callable, and are context managers."""

    def __init__(self) -> None:
        super().__init__()
        self._generators: list[AsyncGenerator[WebhookClientConfig, None]] = []

    def __repr__(self) -> str:
        values = {name: vars(self).get(name) for name in ("addr", "port", "host", "path")}
        texts = [f"{name}={value!r}" for name, value in values.items() if value is not None]
        return f"{type(self).__name__}({', '.join(texts)})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        generators, self._generators = self._generators, []
        for generator in generators:
            await generator.aclose()

    def __call__(self, fn: WebhookFn, /) -> AsyncIterator[WebhookClientConfig]:
        """Serve the requests by the function, for as long as the configs are iterated over."""
        generator = self._serve(fn)
        self._generators.append(generator)
        return generator

    def _serve(self, fn: WebhookFn) -> AsyncGenerator[WebhookClientConfig, None]:
        raise TypeError(f"{type(self).__name__} does not implement serving.")


class WebhookServer(WebhookServerBase):
    """An HTTP(S) server in the operator's process; with no certificate given, a self-signed one.

    Args:
        addr: The address to listen at; None: all addresses.
        port: The port to listen at; None: a random one.
        path: The path of the URL, for the server and for Kubernetes.
        host: The host name of the URL for Kubernetes; None: by the kind of the server.
        cadata: The certificates of the authorities, in PEM, for Kubernetes.
        cafile: The file with these certificates.
        cadump: The file to which to write the certificates for Kubernetes.
        context: The TLS context; None: one by the other options.
        insecure: Whether to serve without TLS.
        certfile: The file with the certificate of the server; None: a self-signed one.
        pkeyfile: The file with its private key.
        password: The password of the private key.
        extra_sans: Additional names and addresses of a self-signed certificate.
        verify_mode: Whether clients need certificates.
        verify_cafile: The file with the authorities of client certificates.
        verify_capath: The folder with the authorities of client certificates.
        verify_cadata: The authorities of client certificates themselves.
        file_check_interval: The seconds between two checks whether the files or the Secret have changed.
        secret: The name of a Secret with the certificate, which all replicas share, or its namespace and name
            with a slash; by default, the namespace is that of the pod or of the credentials. If there is no
            such Secret, the operator creates it with a self-signed certificate, and renews that.
    """

    DEFAULT_HOST: ClassVar[str | None] = None

    def __init__(
        self,
        *,
        addr: str | None = None,
        port: int | None = None,
        path: str | None = None,
        host: str | None = None,
        cadata: bytes | None = None,
        cafile: PathT | None = None,
        cadump: PathT | None = None,
        context: ssl.SSLContext | None = None,
        insecure: bool = False,
        certfile: PathT | None = None,
        pkeyfile: PathT | None = None,
        password: str | None = None,
        extra_sans: Iterable[str] = (),
        verify_mode: ssl.VerifyMode | None = None,
        verify_cafile: PathT | None = None,
        verify_capath: PathT | None = None,
        verify_cadata: str | bytes | None = None,
        file_check_interval: float = 60.0,
        secret: str | None = None,
    ) -> None:
        super().__init__()
        self.addr = addr
        self.port = port
        self.path = path
        self.host = host
        self.cadata = cadata
        self.cafile = cafile
        self.cadump = cadump
        self.context = context
        self.insecure = insecure
        self.certfile = certfile
        self.pkeyfile = pkeyfile
        self.password = password
        self.extra_sans = extra_sans if isinstance(extra_sans, Collection) else list(extra_sans)
        self.verify_mode = verify_mode
        self.verify_cafile = verify_cafile
        self.verify_capath = verify_capath
        self.verify_cadata = verify_cadata
        self.file_check_interval = file_check_interval
        self.secret = secret

    async def _serve(self, fn: WebhookFn) -> AsyncGenerator[WebhookClientConfig, None]:
        if self.insecure and self.context is not None:
            raise ValueError("Insecure mode cannot have an SSL context specified.")
        if self.secret and (self.insecure or self.certfile or self.pkeyfile):
            raise ValueError("A server with secret=... can have neither certfile, pkeyfile, nor insecure.")
        admission = fn if isinstance(fn, Admission) else None
        if admission is not None and admission.elects_leader and has_own_certificate(self):
            logger.warning(OWN_CERTIFICATES)
        async with contextlib.AsyncExitStack() as stack:
            options, secret, files = self._tls_options(), None, None
            if self.secret:
                secret = await self._open_secret(self.secret, admission)
                files = stack.enter_context(MemoryFiles())
                files.write(secret.contents())
                options |= _file_options(files, options)
            server, listener = await self._listen(stack, admission, options, secret)
            if admission is None:
                stack.enter_context(RequestPump(server, fn))
            yield self._config(listener.port, listener.ca_bundle())
            while True:
                await asyncio.sleep(self._check_interval(secret))
                if secret is not None and files is not None and await secret.poll():
                    files.write(secret.contents())
                if self._reload(listener):
                    yield self._config(listener.port, listener.ca_bundle())

    def _check_interval(self, secret: CertificateSecret | None) -> float:
        retry = secret.retry if secret is not None else None
        return self.file_check_interval if retry is None else min(self.file_check_interval, retry)

    async def _open_secret(self, secret: str, admission: Admission | None) -> CertificateSecret:
        if admission is None:
            raise ValueError(
                "A server with secret=... needs the client of an operator: pass the function of"
                " settings.admission.server itself, not a wrapper of it."
            )
        opened = CertificateSecret(
            secret,
            api=await admission.connect(),
            may_write=admission.may_write,
            names=shared_names(self),
            build=lambda: self.build_certificate(self._hostnames(), self.password),
        )
        await opened.open()
        return opened

    async def _listen(
        self,
        stack: contextlib.AsyncExitStack,
        admission: Admission | None,
        options: dict[str, Any],
        secret: CertificateSecret | None,
    ) -> tuple[bridge.WebhookServer, bridge.WebhookServer | tls_proxy.TlsProxy]:
        """The server of the requests, and what listens for it."""
        engine = admission.engine if admission is not None else None
        try:
            context = self._context()
            if context is None:
                server = bridge.WebhookServer(engine=engine, **self._listener_options(), **options)
                stack.push_async_callback(_join, server)
                return server, server
            server = bridge.WebhookServer(engine=engine, path=self.path or "", listening=False)
            stack.push_async_callback(_join, server)
            proxy = tls_proxy.TlsProxy(
                server,
                context,
                addr=self.addr,
                port=self.port or 0,
                sources=options,
                verify_mode=self.verify_mode,
                build_certificate=self.build_certificate,
            )
            return server, await stack.enter_async_context(proxy)
        except (ValueError, ssl.SSLError) as error:
            if secret is None:
                raise
            raise secret.unusable(error) from None

    @staticmethod
    def _reload(listener: bridge.WebhookServer | tls_proxy.TlsProxy) -> bool:
        try:
            return listener.reload()
        except (OSError, ValueError) as e:
            # Files are replaced one by one: what does not fit now may fit the next time.
            logger.error(f"The changed certificates of the webhook server cannot be used (yet): {e}")
            return False

    def _context(self) -> ssl.SSLContext | None:
        """The context that needs the TLS proxy; None if the TLS of the engine is sufficient."""
        if self.context is not None or self.insecure or (self.certfile and self.pkeyfile):
            return self.context
        if self.build_certificate is _BUILD_CERTIFICATE:
            return None
        # The kind of key may be one that only OpenSSL supports.
        return ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)

    def _listener_options(self) -> dict[str, Any]:
        return {
            "addr": self.addr or None,
            "port": self.port or 0,
            "path": self.path or "",
            "insecure": self.insecure,
        }

    def _tls_options(self) -> dict[str, Any]:
        verified = self.verify_cafile or self.verify_capath or self.verify_cadata
        mode = self.verify_mode
        if verified and mode in (None, ssl.CERT_NONE):
            mode = ssl.CERT_OPTIONAL
        verify_cadata = self.verify_cadata
        return {
            "certfile": as_path(self.certfile),
            "pkeyfile": as_path(self.pkeyfile),
            "password": self.password,
            "cafile": as_path(self.cafile),
            "cadata": self.cadata,
            "hostnames": self._hostnames(),
            "demand": _VERIFY_MODES.get(mode, "none"),
            "verify_cafile": as_path(self.verify_cafile),
            "verify_capath": as_path(self.verify_capath),
            "verify_cadata": verify_cadata.encode() if isinstance(verify_cadata, str) else verify_cadata,
        }

    def _host(self) -> str:
        addr = self.addr or "localhost"
        return self.host or self.DEFAULT_HOST or WILDCARD_ADDRESSES.get(addr, addr)

    def _hostnames(self) -> list[str]:
        # Also the address itself: not only the cluster connects, but also clients on this machine.
        addr = self.addr or "localhost"
        names = [self._host(), WILDCARD_ADDRESSES.get(addr, addr), *self.extra_sans]
        return list(dict.fromkeys(names))

    def _url(self, host: str, port: int) -> str:
        scheme, usual = ("http", 80) if self.insecure else ("https", 443)
        host = f"[{host}]" if ":" in host else host
        address = host if port == usual else f"{host}:{port}"
        return f"{scheme}://{address}{self.path or ''}"

    def _config(self, port: int, authority: bytes | None) -> WebhookClientConfig:
        logger.debug(f"Listening for webhooks at {self._url(self.addr or '*', port)}")
        config = WebhookClientConfig(url=self._url(self._host(), port))
        logger.debug(f"Accessing the webhooks at {config['url']}")
        if authority is None:  # without encryption: the authority of a proxy
            authority = self.cadata
            if authority is None and self.cafile is not None:
                authority = pathlib.Path(self.cafile).read_bytes()
        if authority is not None:
            config["caBundle"] = base64.b64encode(authority).decode("ascii")
            if self.cadump is not None:
                pathlib.Path(self.cadump).write_bytes(authority)
        return config

    @staticmethod
    def build_certificate(hostnames: Iterable[str], password: str | None = None) -> tuple[bytes, bytes]:
        """Make a self-signed certificate and its private key, both in PEM.

        Args:
            hostnames: The names and addresses of the server.
            password: The password of the private key; None: not encrypted.
        """
        return bridge.build_certificate(list(hostnames), password)


# To detect that it is overridden or replaced.
_BUILD_CERTIFICATE = WebhookServer.build_certificate

_VERIFY_MODES: dict[ssl.VerifyMode | None, str] = {
    ssl.CERT_NONE: "none",
    ssl.CERT_OPTIONAL: "optional",
    ssl.CERT_REQUIRED: "required",
}


def has_own_certificate(server: object) -> bool:
    """Whether each replica generates another certificate, and clients reach all of them by one name."""
    return (
        isinstance(server, WebhookServer)
        and not server.secret
        and not server.insecure
        and not (server.certfile and server.pkeyfile)
        and server.build_certificate is _BUILD_CERTIFICATE
        and bool(shared_names(server))
    )


def shared_names(server: WebhookServer) -> list[str]:
    """The given names and addresses by which other machines connect, such as that of a Service."""
    names = [server.host or "", *server.extra_sans]
    return [name for name in names if name and name not in LOOPBACK_NAMES]


def _file_options(files: MemoryFiles, options: dict[str, Any]) -> dict[str, Any]:
    """The options of TLS with the files of a Secret. Given authorities are stronger."""
    found = {"certfile": files.path(CERTIFICATE), "pkeyfile": files.path(KEY)}
    if options["cadata"] is None and options["cafile"] is None:
        found["cafile"] = files.path(AUTHORITIES)
    return found


def as_path(path: PathT | None) -> str | None:
    """Convert the path to a string."""
    return os.fspath(path) if path is not None else None


async def _join(server: bridge.WebhookServer) -> None:
    """Stop the server and wait until its tasks have ended."""
    server.stop()  # at once: the threads of the event loop may be busy
    # In a thread: meanwhile, the event loop answers the current requests.
    await asyncio.to_thread(server.join)


class WebhookK3dServer(WebhookServer):
    """A server for clusters of K3d/K3s on the same machine."""

    DEFAULT_HOST = "host.k3d.internal"


class WebhookMinikubeServer(WebhookServer):
    """A server for clusters of Minikube on the same machine."""

    DEFAULT_HOST = "host.minikube.internal"


class WebhookDockerDesktopServer(WebhookServer):
    """A server for clusters of Docker Desktop on the same machine."""

    DEFAULT_HOST = "host.docker.internal"


_HOSTS = {
    local_clusters.LocalCluster.K3S: WebhookK3dServer.DEFAULT_HOST,
    local_clusters.LocalCluster.MINIKUBE: WebhookMinikubeServer.DEFAULT_HOST,
    local_clusters.LocalCluster.DOCKER_DESKTOP: WebhookDockerDesktopServer.DEFAULT_HOST,
}


_engine_var: contextvars.ContextVar[bridge.Engine | None] = contextvars.ContextVar("engine", default=None)
"""The engine of the operator whose cluster is to be recognised."""


class ClusterDetector:
    """Base of automatic servers and tunnels: detection of the operator's cluster."""

    @staticmethod
    async def guess_host() -> str | None:
        """Find the name under which the pods of the cluster reach this machine; None if it is not known.

        It is known while an operator uses this server; override it for clusters of other kinds.
        """
        engine = _engine_var.get()
        local_cluster = await local_clusters.detect(engine) if engine is not None else None
        return _HOSTS[local_cluster] if local_cluster is not None else None

    async def _detect(self, fn: WebhookFn, otherwise: str) -> str | None:
        token = _engine_var.set(fn.engine if isinstance(fn, Admission) else None)
        try:
            host = await self.guess_host()
        finally:
            _engine_var.reset(token)
        if host is None:
            logger.debug(f"Cluster detection failed, {otherwise}.")
        else:
            logger.debug(f"Cluster detection found the hostname: {host}")
        return host


class WebhookAutoServer(ClusterDetector, WebhookServer):
    """A server for the local cluster that is detected on the same machine."""

    async def _serve(self, fn: WebhookFn) -> AsyncGenerator[WebhookClientConfig, None]:
        host = await self._detect(fn, "running a simple local server")
        if host is not None:
            # A host that is given by the user is stronger than any guess.
            self.DEFAULT_HOST = host  # type: ignore[misc]
        async with contextlib.aclosing(super()._serve(fn)) as configs:
            async for config in configs:
                yield config
