"""Built-in login handlers.

Users can also call them from their own login handlers. They are synchronous unless noted.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from kopf._intents import compatibility
from kopf._intents.settings import OperatorSettings
from kopf._objects import credentials
from kopf._objects.logging_types import Logger
from kopf._runtime import bridge

PRIORITY_OF_CLIENT = 10
PRIORITY_OF_ASYNC_CLIENT = 15
PRIORITY_OF_PYKUBE = 20
PRIORITY_OF_KUBECONFIG = 10
PRIORITY_OF_SERVICE_ACCOUNT = 20


def has_pykube() -> bool:
    """Whether pykube-ng is installed."""
    return _is_installed("pykube")


def has_sync_client() -> bool:
    """Whether the official client is installed."""
    return _is_installed("kubernetes")


def has_async_client() -> bool:
    """Whether the asynchronous version of the official client is installed."""
    return _is_installed("kubernetes_asyncio")


def _is_installed(name: str) -> bool:
    # Tests put stubs there, which have no spec.
    if name in sys.modules:
        return sys.modules[name] is not None
    return importlib.util.find_spec(name) is not None


def has_broken_library() -> bool:
    """Whether a client library is installed but cannot be imported. It imports the others."""
    return any(
        _is_installed(name) and not _is_importable(name)
        for name in ("pykube", "kubernetes", "kubernetes_asyncio")
    )


def _is_importable(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def has_client() -> bool:
    """Whether any of the official clients is installed."""
    return has_sync_client() or has_async_client()


def has_service_account() -> bool:
    """Whether we are in a pod with a service account."""
    return bridge.has_service_account()


def has_kubeconfig() -> bool:
    """Whether there is a kubeconfig: named in the environment or at its usual place."""
    return bridge.has_kubeconfig()


def prefers_kubeconfig(settings: OperatorSettings) -> bool:
    """Whether the kubeconfig is used even in a pod with a service account.

    It is if the environment names it, as for kubectl. Kopf 1.45 always prefers the service account.
    """
    return bridge.has_named_kubeconfig() and not compatibility.of_settings(settings).prefers_service_account


def login_via_client(
    *, logger: Logger, settings: OperatorSettings, **_: Any
) -> credentials.ConnectionInfo | None:
    """Log in by the official client library; None if it is not installed, `LoginError` if it cannot.

    Args:
        logger: Not used.
        settings: The settings of the operator.
        **_: The other keyword arguments of handlers.

    Raises:
        LoginError: The library finds no credentials.
    """
    try:
        import kubernetes.config as config
        from kubernetes.client import Configuration
    except ImportError:
        return None

    try:
        if prefers_kubeconfig(settings):
            raise config.ConfigException("KUBECONFIG is set.")
        config.load_incluster_config()
        logger.debug("Client is configured in cluster with service account.")
    except config.ConfigException as e1:
        try:
            config.load_kube_config()
            logger.debug("Client is configured via kubeconfig file.")
        except config.ConfigException as e2:
            text = "Cannot authenticate the client library neither in-cluster, nor via kubeconfig."
            raise _login_error(text, e2, settings) from (e2 or e1)

    configuration = Configuration.get_default_copy()
    headers = [configuration.get_api_key_with_prefix(key) for key in _TOKEN_KEYS]
    return _from_configuration(configuration, settings, headers, priority=PRIORITY_OF_CLIENT)


async def login_via_async_client(
    *, logger: Logger, settings: OperatorSettings, **_: Any
) -> credentials.ConnectionInfo | None:
    """Log in by the asynchronous client library; None if it is not installed, `LoginError` if it cannot.

    Args:
        logger: Not used.
        settings: The settings of the operator.
        **_: The other keyword arguments of handlers.

    Raises:
        LoginError: The library finds no credentials.
    """
    try:
        import kubernetes_asyncio.config as config
        from kubernetes_asyncio.client import Configuration
    except ImportError:
        return None

    try:
        if prefers_kubeconfig(settings):
            raise config.ConfigException("KUBECONFIG is set.")
        config.load_incluster_config()
        logger.debug("Async client is configured in cluster with service account.")
    except config.ConfigException as e1:
        try:
            await config.load_kube_config()
            logger.debug("Async client is configured via kubeconfig file.")
        except config.ConfigException as e2:
            text = "Cannot authenticate the async client library neither in-cluster, nor via kubeconfig."
            raise _login_error(text, e2, settings) from (e2 or e1)

    configuration = Configuration.get_default_copy()
    headers = [configuration.get_api_key_with_prefix(key) for key in _TOKEN_KEYS]
    # Since its version 33.3, these are coroutines.
    headers = [await header if inspect.isawaitable(header) else header for header in headers]
    proxy_url = getattr(configuration, "proxy", None)
    return _from_configuration(
        configuration, settings, headers, priority=PRIORITY_OF_ASYNC_CLIENT, proxy_url=proxy_url
    )


_TOKEN_KEYS = ("BearerToken", "authorization")
"""Where tokens are in the configurations of the libraries: now, and as it was once."""


def _login_error(text: str, reason: Exception, settings: OperatorSettings) -> credentials.LoginError:
    """The error of a library, with the reason if there is a kubeconfig: it is logged without a traceback."""
    is_broken = has_kubeconfig() and not compatibility.of_settings(settings).hides_login_reasons
    return credentials.LoginError(f"{text} {reason}".rstrip() if is_broken else text)


def _from_configuration(
    configuration: Any,
    settings: OperatorSettings,
    headers: Iterable[str | None],
    *,
    priority: int,
    proxy_url: str | None = None,
) -> credentials.ConnectionInfo:
    header = next(filter(None, headers), None)
    parts: Sequence[str] = header.split(" ", 1) if header else []
    scheme, token = (
        (None, None) if not parts else (None, parts[0]) if len(parts) == 1 else (parts[0], parts[1])
    )
    return credentials.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        username=configuration.username or None,
        password=configuration.password or None,
        scheme=scheme,
        token=token,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        priority=priority,
        proxy_url=proxy_url,
        trust_env=settings.networking.trust_env,
    )


def login_via_pykube(
    *, logger: Logger, settings: OperatorSettings, **_: Any
) -> credentials.ConnectionInfo | None:
    """Log in by pykube; None if it is not installed, `LoginError` if it cannot.

    Args:
        logger: Not used.
        settings: The settings of the operator.
        **_: The other keyword arguments of handlers.

    Raises:
        LoginError: The library finds no credentials.
    """
    try:
        import pykube
    except ImportError:
        return None

    try:
        if prefers_kubeconfig(settings):
            raise FileNotFoundError("KUBECONFIG is set.")
        config = pykube.KubeConfig.from_service_account()
        logger.debug("Pykube is configured in cluster with service account.")
    except (
        FileNotFoundError,
        KeyError,
    ):  # there is no token, or no address of the cluster in the environment
        try:
            config = pykube.KubeConfig.from_file()
            logger.debug("Pykube is configured via kubeconfig file.")
        except (pykube.PyKubeError, FileNotFoundError) as e2:
            text = "Cannot authenticate pykube neither in-cluster, nor via kubeconfig."
            raise _login_error(text, e2, settings) from e2

    # A token of a provider is there only after the first request was made with it.
    if config.user.get("auth-provider"):
        api = pykube.HTTPClient(config)
        api.get(version="", base="/")

    user = config.user
    provider = user.get("auth-provider", {}).get("config", {})
    ca: Any = config.cluster.get("certificate-authority")
    certificate: Any = user.get("client-certificate")
    private_key: Any = user.get("client-key")
    return credentials.ConnectionInfo(
        server=config.cluster.get("server"),
        ca_path=ca.filename() if ca else None,
        insecure=config.cluster.get("insecure-skip-tls-verify"),
        username=user.get("username"),
        password=user.get("password"),
        token=user.get("token") or provider.get("access-token"),
        certificate_path=certificate.filename() if certificate else None,
        private_key_path=private_key.filename() if private_key else None,
        default_namespace=config.namespace,
        priority=PRIORITY_OF_PYKUBE,
        proxy_url=config.cluster.get("proxy-url"),
        trust_env=settings.networking.trust_env,
    )


def login_with_service_account(*, settings: OperatorSettings, **_: Any) -> credentials.ConnectionInfo | None:
    """Log in as the service account of the pod; None if there is no token of it.

    Args:
        settings: The settings of the operator.
        **_: The other keyword arguments of handlers.
    """
    fields = bridge.read_service_account()
    if fields is None:
        return None
    return credentials.ConnectionInfo(
        **fields,
        server="https://kubernetes.default.svc",
        priority=PRIORITY_OF_SERVICE_ACCOUNT,
        trust_env=settings.networking.trust_env,
    )


def login_with_kubeconfig(*, settings: OperatorSettings, **_: Any) -> credentials.ConnectionInfo | None:
    """Log in with the current context of the kubeconfigs; None if there are no kubeconfigs.

    The engine reads the files. The first value of several files is used, and paths are relative to their
    file. Plugins are not executed: such users have no credentials. An unusable file is a `LoginError`, which
    is also an error as in Kopf 1.45: `yaml.YAMLError` for files that cannot be parsed, `KeyError` for
    references to nothing. Missing files are skipped; if all are missing, it is a `FileNotFoundError`. A
    cluster without a server is an error later, when it is connected to.

    Args:
        settings: The settings of the operator.
        **_: The other keyword arguments of handlers.
    """
    if not has_kubeconfig():
        return None
    fields = bridge.read_kubeconfig()
    if isinstance(fields, tuple):
        raise _kubeconfig_error(*fields)
    return credentials.ConnectionInfo(
        **fields, priority=PRIORITY_OF_KUBECONFIG, trust_env=settings.networking.trust_env
    )


def _kubeconfig_error(kind: str, message: str) -> credentials.LoginError:
    import yaml

    class CorruptedKubeconfigError(credentials.LoginError, yaml.YAMLError):
        """A kubeconfig is not what it should be. In Kopf 1.45, it is a `YAMLError`."""

    if kind == "corrupted":
        return CorruptedKubeconfigError(message)
    return (credentials.MissingInKubeconfigError if kind == "missing" else credentials.LoginError)(message)
