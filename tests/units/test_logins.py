"""The logins by client libraries, with fake libraries; tests/operators uses real ones."""

import asyncio
import logging
import os
import re
import sys
import types
import unittest.mock

import kopf
import pytest
import yaml
from kopf._intents.handlers import ActivityHandler
from kopf._objects.reasons import Activity
from kopf._runtime.activities import Activities, serialize_credentials
from kopf._runtime.default_registry import SmartOperatorRegistry
from kopf._runtime.executor import ExecutorPool
from kopf._runtime.invocation import Invoker

pytestmark = pytest.mark.contract("api 7.2", "api 7.4")


class ConfigError(Exception):
    """The errors of the libraries if there is no configuration."""


class Configuration:
    """The configuration of a client, with the token where the tests put it."""

    host, ssl_ca_cert, verify_ssl = "https://h", "/ca", True
    username, password, cert_file, key_file, proxy = "", "", None, None, "http://proxy"
    keys: dict[str, str]

    @classmethod
    def get_default_copy(cls):
        return cls()

    def get_api_key_with_prefix(self, key):
        return self.keys.get(key)


class AwaitedConfiguration(Configuration):
    """As it is in kubernetes_asyncio since its version 33.3."""

    async def get_api_key_with_prefix(self, key):
        return self.keys.get(key)


def install(monkeypatch, name, configuration, *, in_cluster, by_file, reason=""):
    def load(succeed):
        if not succeed:
            raise ConfigError(reason)

    async def load_async():
        load(by_file)

    config = types.ModuleType(f"{name}.config")
    config.ConfigException = ConfigError
    config.load_incluster_config = lambda: load(in_cluster)
    config.load_kube_config = load_async if "async" in name else lambda: load(by_file)
    client = types.ModuleType(f"{name}.client")
    client.Configuration = configuration
    library = types.ModuleType(name)
    library.config, library.client = config, client
    for module in (library, config, client):
        monkeypatch.setitem(sys.modules, module.__name__, module)


def login(name):
    kwargs = {"logger": logging.getLogger("test"), "settings": kopf.OperatorSettings()}
    if "async" in name:
        return asyncio.run(kopf.login_via_async_client(**kwargs))
    return kopf.login_via_client(**kwargs)


FLAVOURS = [
    pytest.param("kubernetes", Configuration, id="kubernetes"),
    pytest.param("kubernetes_asyncio", Configuration, id="older kubernetes_asyncio"),
    pytest.param("kubernetes_asyncio", AwaitedConfiguration, id="kubernetes_asyncio"),
]


@pytest.mark.parametrize("name, configuration", FLAVOURS)
@pytest.mark.parametrize(
    "keys, expected",
    [
        ({"BearerToken": "Bearer t"}, ("Bearer", "t")),
        ({"authorization": "Basic b64"}, ("Basic", "b64")),
        ({"BearerToken": "t", "authorization": "Bearer old"}, (None, "t")),
        ({}, (None, None)),
    ],
)
def test_tokens_of_client_libraries_are_taken(monkeypatch, name, configuration, keys, expected):
    monkeypatch.setattr(configuration, "keys", keys, raising=False)
    install(monkeypatch, name, configuration, in_cluster=False, by_file=True)
    info = login(name)
    assert (info.scheme, info.token) == expected
    assert (info.server, info.ca_path, info.insecure, info.username) == ("https://h", "/ca", False, None)
    assert info.proxy_url == ("http://proxy" if "async" in name else None)
    assert info.priority == (15 if "async" in name else 10)


@pytest.mark.parametrize("name, configuration", FLAVOURS)
def test_clusters_come_first(monkeypatch, caplog, name, configuration):
    monkeypatch.setattr(configuration, "keys", {}, raising=False)
    install(monkeypatch, name, configuration, in_cluster=True, by_file=False)
    caplog.set_level(logging.DEBUG)
    assert login(name) is not None
    assert "lient is configured in cluster with service account." in caplog.text


@pytest.mark.parametrize("name, configuration", FLAVOURS)
def test_neither_is_an_error(monkeypatch, name, configuration):
    install(monkeypatch, name, configuration, in_cluster=False, by_file=False)
    with pytest.raises(kopf.LoginError, match=r"client library neither in-cluster, nor via kubeconfig\."):
        login(name)


async def authenticate(fn, settings):
    """Log in as an operator without login handlers of its author, with this fallback."""
    registry = kopf.OperatorRegistry()
    registry._activities.append(
        ActivityHandler(
            id=fn.__name__,
            fn=fn,
            param=None,
            errors=kopf.ErrorsMode.IGNORED,
            timeout=None,
            retries=None,
            backoff=None,
            activity=Activity.AUTHENTICATION,
            _fallback=True,
        )
    )
    return await authenticate_by(registry, settings)


async def authenticate_by(registry, settings):
    invoker = Invoker(settings, ExecutorPool())
    activities = Activities(registry=registry, settings=settings, memo={}, indices={}, invoker=invoker)
    return await activities.authenticate()


def test_the_engine_logs_in_if_the_installed_library_cannot_be_imported(monkeypatch, tmp_path):
    package = tmp_path / "kubernetes"
    package.mkdir()
    (package / "__init__.py").write_text("import a_dependency_that_is_not_installed")
    monkeypatch.syspath_prepend(tmp_path)
    registry = SmartOperatorRegistry()
    assert "login_via_client" in [handler.id for handler in registry._activities.get_all_handlers()]
    assert asyncio.run(authenticate_by(registry, kopf.OperatorSettings())) is None


@pytest.mark.parametrize("is_broken", [True, False])
def test_results_of_the_author_are_final(monkeypatch, is_broken):
    monkeypatch.setattr("kopf._runtime.activities.has_broken_library", lambda: is_broken)
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def fn(**_):
        return None

    assert asyncio.run(authenticate_by(registry, kopf.OperatorSettings())) == []


@pytest.mark.parametrize("compat, level", [(None, "INFO"), (None, "DEBUG"), ("1.45", "INFO")])
@pytest.mark.parametrize(
    "fn", [kopf.login_via_client, kopf.login_via_async_client], ids=lambda fn: fn.__name__
)
def test_failed_libraries_are_logged_without_tracebacks(monkeypatch, tmp_path, caplog, fn, compat, level):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    name = "kubernetes" if fn is kopf.login_via_client else "kubernetes_asyncio"
    install(monkeypatch, name, Configuration, in_cluster=False, by_file=False)
    settings = kopf.OperatorSettings()
    settings.process.compat = compat
    caplog.set_level(level)
    assert asyncio.run(authenticate(fn, settings)) == []
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage().startswith(
        f"Activity '{fn.__name__}' failed with an exception and will ignore it: Cannot authenticate the "
    )
    assert record.getMessage().endswith("client library neither in-cluster, nor via kubeconfig.")
    assert bool(record.exc_info) == (compat is not None or level == "DEBUG")


@pytest.mark.parametrize("name, configuration", FLAVOURS)
def test_the_reason_is_named_if_there_is_a_kubeconfig(monkeypatch, kubeconfig, name, configuration):
    install(monkeypatch, name, configuration, in_cluster=False, by_file=False, reason="no context")
    kubeconfig(KUBECONFIG)
    with pytest.raises(kopf.LoginError, match=r"nor via kubeconfig\. no context$"):
        login(name)


@pytest.mark.parametrize("name", ["kubernetes", "kubernetes_asyncio"])
def test_without_libraries_there_are_no_credentials(monkeypatch, name):
    monkeypatch.setitem(sys.modules, f"{name}.config", None)
    assert login(name) is None


PROXIES = {"HTTPS_PROXY": "http://me:secret@proxy:3128", "NO_PROXY": "inside, .local,10.0.0.1:6443"}


@pytest.mark.contract("api 7.1")
@pytest.mark.parametrize(
    "server, fields, expected",
    [
        ("https://outside", {"trust_env": True}, "http://me:secret@proxy:3128"),
        ("https://outside:6443/path", {"trust_env": True}, "http://me:secret@proxy:3128"),
        ("https://inside", {"trust_env": True}, None),
        ("https://x.local", {"trust_env": True}, None),
        ("https://10.0.0.1:6443", {"trust_env": True}, None),
        ("http://outside", {"trust_env": True}, None),
        ("https://outside", {"trust_env": True, "proxy_url": "http://own"}, "http://own"),
        ("https://inside", {"trust_env": True, "proxy_url": "http://own"}, "http://own"),
        ("https://outside", {}, None),
    ],
)
def test_proxies_of_the_environment_are_used_if_it_is_trusted(monkeypatch, server, fields, expected):
    for name in ["HTTP_PROXY", "http_proxy", "https_proxy", "no_proxy", "ALL_PROXY", "all_proxy"]:
        monkeypatch.delenv(name, raising=False)
    for name, value in PROXIES.items():
        monkeypatch.setenv(name, value)
    wire = serialize_credentials(kopf.ConnectionInfo(server=server, **fields))
    assert wire.get("proxy_url") == expected


@pytest.mark.parametrize(
    "info, error, message",
    [
        (5, ValueError, "Only ConnectionInfo/AiohttpSession instances are accepted."),
        (kopf.AiohttpSession(server="x", aiohttp_session=None), TypeError, "Return kopf.ConnectionInfo"),
        (
            type("Mine", (kopf.ConnectionInfo,), {"as_ssl_context": None})(server="x"),
            TypeError,
            "set the fields",
        ),
        (
            kopf.ConnectionInfo(server="x", priority=2**63),
            kopf.LoginError,
            r"The priority of the credentials does not fit into 64 bits: 9223372036854775808\.",
        ),
    ],
)
def test_credentials_that_cannot_be_used_are_rejected_with_advice(info, error, message):
    with pytest.raises(error, match=message):
        serialize_credentials(info)


KUBECONFIG = """
current-context: here
contexts: [{name: here, context: {cluster: home, user: me, namespace: mine}}]
clusters: [{name: home, cluster: {server: "https://h"}}]
users: [{name: me, user: {token: s3cret}}]
"""


@pytest.fixture
def kubeconfig(monkeypatch, tmp_path):
    """Write the text into the only kubeconfig."""
    path = tmp_path / "config"
    monkeypatch.setenv("KUBECONFIG", str(path))

    def write(text):
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize("trust_env", [True, False])
def test_provider_tokens_and_the_trust_in_the_environment_are_passed(kubeconfig, trust_env):
    kubeconfig(
        KUBECONFIG.replace('server: "https://h"', "").replace(
            "token: s3cret", "auth-provider: {name: p, config: {access-token: provided}}"
        )
    )
    settings = kopf.OperatorSettings()
    settings.networking.trust_env = trust_env
    info = kopf.login_with_kubeconfig(settings=settings)
    assert (info.server, info.token, info.trust_env) == (None, "provided", trust_env)
    with pytest.raises(kopf.LoginError, match=r"no server: set `server` of the cluster in the kubeconfig"):
        serialize_credentials(info)


@pytest.mark.parametrize(
    "text, also, message",
    [
        (
            "users: [{name: me, user: {token: s3cret}",
            yaml.YAMLError,
            r"cannot be parsed at line 1, column \d+\.",
        ),
        ("'s3cret'", yaml.YAMLError, r"is not a mapping\."),
        ("[1, 2]", yaml.YAMLError, r"is not a mapping\."),
        (KUBECONFIG.replace("contexts: [", "contexts: [{}, "), KeyError, r"has no name in contexts\[0\]\."),
        (re.sub("clusters: .*", "clusters: 5", KUBECONFIG), Exception, r"has clusters that are not a list\."),
        (
            KUBECONFIG.replace("user: {token: s3cret}", "user: s3cret"),
            Exception,
            r"has users\[0\]\.user that is not a mapping\.",
        ),
        (
            KUBECONFIG.replace("current-context: here", "current-context: there"),
            KeyError,
            r"The context cannot be found: current-context of .* refers to 'there'",
        ),
        (
            KUBECONFIG.replace("cluster: home", "cluster: away"),
            KeyError,
            r"The cluster cannot be found: contexts\[here\]\.cluster of .* refers to 'away'",
        ),
        (
            KUBECONFIG.replace("user: me", "to: me"),
            KeyError,
            r"The user cannot be found: contexts\[here\]\.user of .* refers to nothing\.",
        ),
    ],
)
def test_broken_kubeconfigs_are_login_errors_with_the_file_and_the_field(kubeconfig, text, also, message):
    path = kubeconfig(text)
    with pytest.raises(kopf.LoginError, match=message) as caught:
        kopf.login_with_kubeconfig(settings=kopf.OperatorSettings())
    # Code that catches the errors of Kopf 1.45 still works.
    assert isinstance(caught.value, also)
    assert str(path) in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_empty_texts_are_as_absent_ones():
    given = {"server": "http://h", "token": "t", "priority": 0, "insecure": False}
    texts = dict.fromkeys(["scheme", "ca_path", "username", "password", "default_namespace", "proxy_url"], "")
    info = kopf.ConnectionInfo(**given, **texts, certificate_data=b"")
    assert serialize_credentials(info) == given | {"trust_env": False}


def test_the_largest_priorities_are_passed():
    for priority in [2**63 - 1, -(2**63)]:
        assert (
            serialize_credentials(kopf.ConnectionInfo(server="x", priority=priority))["priority"] == priority
        )


def test_paths_in_a_kubeconfig_are_relative_to_it(kubeconfig):
    path = kubeconfig(
        KUBECONFIG.replace('"https://h"', '"https://h", certificate-authority: pki/ca.crt').replace(
            "{token: s3cret}", "{client-certificate: c.crt, client-key: /c.key}"
        )
    )
    info = kopf.login_with_kubeconfig(settings=kopf.OperatorSettings())
    assert info.ca_path == str(path.parent / "pki/ca.crt")
    assert (info.certificate_path, info.private_key_path) == (str(path.parent / "c.crt"), "/c.key")


def test_a_missing_kubeconfig_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        kopf.login_with_kubeconfig(settings=kopf.OperatorSettings())


@pytest.mark.parametrize("name, configuration", FLAVOURS)
@pytest.mark.parametrize(
    "exists, compat, expected",
    [(True, None, "kubeconfig file"), (True, "1.45", "in cluster"), (False, None, "in cluster")],
)
def test_a_named_kubeconfig_wins_over_the_service_account(
    monkeypatch, caplog, kubeconfig, name, configuration, exists, compat, expected
):
    monkeypatch.setattr(configuration, "keys", {}, raising=False)
    install(monkeypatch, name, configuration, in_cluster=True, by_file=True)
    caplog.set_level(logging.DEBUG)
    if exists:
        kubeconfig(KUBECONFIG)
    settings = kopf.OperatorSettings()
    settings.process.compat = compat
    kwargs = {"logger": logging.getLogger("test"), "settings": settings}
    if "async" in name:
        asyncio.run(kopf.login_via_async_client(**kwargs))
    else:
        kopf.login_via_client(**kwargs)
    assert expected in caplog.text


@pytest.mark.contract("api 7.4")
def test_kubeconfigs_are_merged(tmp_path, monkeypatch):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text(
        "current-context: c\ncontexts: [{name: c, context: {cluster: cl, user: u, namespace: n}}]\n"
        "users: [{name: u, user: {token: first}}]"
    )
    two.write_text(
        "clusters: [{name: cl, cluster: {server: 'https://h'}}]\nusers: [{name: u, user: {token: second}}]"
    )
    monkeypatch.setenv("KUBECONFIG", f"{one}{os.pathsep}{two}")
    info = kopf.login_with_kubeconfig(settings=kopf.OperatorSettings())
    assert (info.server, info.token, info.default_namespace, info.priority) == ("https://h", "first", "n", 10)
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([str(tmp_path / "none"), str(one), str(two)]))
    assert kopf.login_with_kubeconfig(settings=kopf.OperatorSettings()) == info
    monkeypatch.setenv("KUBECONFIG", str(two))
    with pytest.raises(kopf.LoginError, match=r"Current context is not set in kubeconfigs."):
        kopf.login_with_kubeconfig(settings=kopf.OperatorSettings())


@pytest.mark.parametrize(
    "stub", [types.ModuleType("kubernetes"), unittest.mock.MagicMock(), types.SimpleNamespace()]
)
def test_stubs_of_libraries_do_not_break_declarations(monkeypatch, stub):
    monkeypatch.setitem(sys.modules, "kubernetes", stub)
    ids = [handler.id for handler in SmartOperatorRegistry()._activities.get_all_handlers()]
    assert "login_via_client" in ids


def test_libraries_that_tests_forbid_are_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    ids = [handler.id for handler in SmartOperatorRegistry()._activities.get_all_handlers()]
    assert "login_via_client" not in ids
