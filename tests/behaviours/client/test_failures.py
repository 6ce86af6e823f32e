"""Section 3.10, scenarios 5, 6, 13: lost responses, overloaded servers, expired tokens, secrets in errors."""

import asyncio
import gc
import logging
import os
import subprocess
import sys
import threading
import time

import kopf
import pytest
from kopf import client as errors
from kopf.testing import Cluster

PLANT = "cGxhbnRlZC1zZWNyZXQ="


@pytest.mark.kopf_embedded_only
def test_3_10_5_a_lost_creation_with_a_name_returns_the_object(client, cluster, config_map):
    cluster.inject("lost", verb="create", resource="configmaps", times=1)
    with pytest.raises(errors.AlreadyExists) as failure:
        client.create(config_map)
    assert failure.value.uncertain
    assert failure.value.body["data"] == {"x": "1"}


@pytest.mark.kopf_embedded_only
def test_3_10_5_a_lost_creation_without_a_name_is_not_repeated(client, cluster, config_map):
    cluster.inject("lost", verb="create", resource="configmaps", times=1)
    nameless = {**config_map, "metadata": {"generateName": "one-"}}
    with pytest.raises(errors.Unreachable, match="may have been executed") as failure:
        client.create(nameless)
    assert failure.value.uncertain
    names = [body.metadata.name for body in client.list("cm")]
    assert len([name for name in names if name.startswith("one-")]) == 1


@pytest.mark.kopf_embedded_only
@pytest.mark.parametrize(
    "proxy, exceptions",
    [
        ("http://proxy.invalid:3128", "localhost,127.0.0.1,"),
        ("http://proxy.invalid:3128", "localhost 127.0.0.1"),
        ("http://proxy.invalid:3128", "localhost,/var/run/docker.sock"),
        ("http://user:pass^word@proxy.invalid:3128", ""),
    ],
)
def test_the_proxies_of_the_environment_are_not_evaluated_unless_they_are_trusted(
    cluster, monkeypatch, proxy, exceptions
):
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    monkeypatch.setenv("NO_PROXY", exceptions)
    with kopf.connect_sync(kubeconfig=cluster.kubeconfig) as api:
        assert api.server_version()


@pytest.mark.kopf_embedded_only
@pytest.mark.parametrize("tls", [False, True], ids=["http", "insecure"])
def test_servers_that_are_not_verified_need_no_certificates_of_the_system(tmp_path, tls):
    nothing = tmp_path / "nothing"
    nothing.touch()
    with Cluster(tls=tls) as cluster:
        given = {"server": cluster.url, "token": cluster.connection.token, "insecure": tls}
        info = f"kopf.ConnectionInfo(**{given!r})"
        code = f"import kopf\nwith kopf.connect_sync({info}) as api: api.server_version()"
        env = {**os.environ, "SSL_CERT_FILE": str(nothing), "SSL_CERT_DIR": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", code], env=env, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.kopf_embedded_only
@pytest.mark.parametrize("call", ["get", "create", "update", "patch", "apply", "delete", "list"])
def test_3_10_6_rejections_for_now_are_repeated_after_the_requested_delay(cluster, config_map, call):
    verb = "patch" if call == "apply" else call
    if call != "create":
        cluster.api.create(config_map)
    cluster.api.find("cm", "nothing")
    calls = {
        "get": lambda api: api.get("cm", "one"),
        "create": lambda api: api.create(config_map),
        "update": lambda api: api.replace(config_map),
        "patch": lambda api: api.patch("cm", "one", {"data": {"y": "2"}}),
        "apply": lambda api: api.apply(config_map, force=True),
        "delete": lambda api: api.delete("cm", "one"),
        "list": lambda api: api.list("cm").version,
    }
    cluster.inject("too-many-requests", 2, verb=verb, resource="configmaps", times=3)
    cluster.freeze()
    cluster.clear_requests()
    results, begin = [], cluster.now
    thread = threading.Thread(target=lambda: results.append(calls[call](cluster.api)), daemon=True)
    thread.start()
    cluster.clock.advance_until(lambda: not thread.is_alive(), timeout=60)
    thread.join(20)
    assert len(results) == 1
    assert [it.code for it in sent(cluster)][:3] == [429, 429, 429]
    assert len(sent(cluster)) == 4
    assert (cluster.now - begin).total_seconds() >= 3 * 2


def sent(cluster):
    return [it for it in cluster.requests if "configmaps" in it.path]


@pytest.mark.kopf_embedded_only
def test_3_10_6_a_rejected_token_is_an_error_without_another_one(cluster):
    info = kopf.ConnectionInfo(server=cluster.url, token="wrong", insecure=True)
    with kopf.connect_sync(info) as api, pytest.raises(kopf.LoginError):
        api.get("cm", "one")


@pytest.mark.kopf_embedded_only
def test_3_10_6_rejected_credentials_are_renewed(client, cluster, config_map):
    client.create(config_map)
    client.get("cm", "one")
    # The object, and the request that verifies whether the server itself rejects the credentials.
    cluster.inject("code", 401, verb="get", times=2)
    cluster.clear_requests()
    assert client.get("cm", "one").metadata.name == "one"
    assert [it.code for it in sent(cluster)] == [401, 200]


@pytest.mark.kopf_embedded_only
def test_3_5_credentials_that_only_another_server_rejects_stay_in_use(client, cluster, config_map):
    client.create(config_map)
    client.get("cm", "one")
    # As from an aggregated API: the server itself accepts the credentials.
    cluster.inject("code", 401, verb="get", resource="configmaps")
    with pytest.raises(errors.Forbidden) as failure:
        client.viewed("using", timeout=20).get("cm", "one")
    assert failure.value.code == 401
    cluster.clear_faults()
    assert client.get("cm", "one").metadata.name == "one"


@pytest.mark.kopf_embedded_only
def test_3_6_an_edit_whose_response_was_lost_is_not_made_twice(client, cluster, config_map):
    client.create({**config_map, "data": {"n": "0"}})

    def increment(body):
        body["data"]["n"] = str(int(body["data"]["n"]) + 1)

    cluster.inject("lost", verb="patch", resource="configmaps", times=1)
    with pytest.raises(errors.Conflict, match="may have been executed") as failure:
        client.edit("cm", "one", increment)
    assert failure.value.uncertain
    assert client.get("cm", "one")["data"] == {"n": "1"}


@pytest.mark.kopf_embedded_only
def test_3_2_a_version_that_is_not_served_any_more_is_forgotten(client, cluster, request):
    name = f"t{cluster.namespace.replace('-', '')}"[:40]
    schema = {"openAPIV3Schema": {"type": "object"}}
    versions = [
        {"name": name, "served": True, "storage": name == "v1", "schema": schema} for name in ("v1", "v2")
    ]
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{name}s.client.example.com"},
        "spec": {
            "group": "client.example.com",
            "scope": "Namespaced",
            "names": {"plural": f"{name}s", "singular": name, "kind": name.capitalize()},
            "versions": versions,
        },
    }
    request.addfinalizer(lambda: cluster.api.delete("crd", crd["metadata"]["name"], missing_ok=True))
    cluster.create(crd)
    cluster.create(
        {"apiVersion": "client.example.com/v1", "kind": name.capitalize(), "metadata": {"name": "one"}}
    )
    kind = f"{name}s.client.example.com"
    assert client.get(kind, "one")["apiVersion"] == "client.example.com/v2"
    cluster.api.patch("crd", crd["metadata"]["name"], {"spec": {"versions": [versions[0]]}})
    deadline = time.monotonic() + 60
    while client.find(kind, "one") is None and time.monotonic() < deadline:
        threading.Event().wait(0.05)
    assert client.get(kind, "one")["apiVersion"] == "client.example.com/v1"


@pytest.mark.kopf_embedded_only
def test_retries_can_be_switched_off_and_limited(client, cluster, config_map):
    client.create(config_map)
    cluster.inject("code", 500, verb="get", resource="configmaps")
    with pytest.raises(errors.ServerFailed, match="500") as failure:
        client.viewed("using", retries=False).get("cm", "one")
    assert not failure.value.uncertain
    with pytest.raises(errors.TimedOut):
        client.viewed("using", timeout=0.2).get("cm", "one")


def test_3_10_13_secrets_are_not_in_errors_and_logs(client, caplog):
    caplog.set_level(logging.DEBUG)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one"}, "data": {"a": PLANT}}
    failures = []
    for wrong in (
        {**secret, "metadata": {"name": "Wrong Name"}},
        {**secret, "immutable": PLANT},
        {**secret, "data": {"a": PLANT + "!"}},
        {**secret, "data": {"a b": PLANT}},
    ):
        with pytest.raises(kopf.ApiError) as failure:
            client.create(wrong)
        failures.append(failure.value)
    client.create(secret)
    with pytest.raises(kopf.ApiError) as failure:
        client.create(secret)
    failures.append(failure.value)
    shown = " ".join([repr(error) + error.message + repr(error.details) for error in failures])
    assert "secrets" in shown
    assert "cGxhbnRl" not in shown + caplog.text


@pytest.mark.kopf_embedded_only
def test_3_10_10_a_cancelled_call_cancels_the_request(cluster, config_map):
    cluster.api.create(config_map)
    cluster.inject("latency", 30, verb="get", resource="configmaps", times=1)

    async def cancel():
        api = cluster.async_api
        loop = asyncio.get_running_loop()
        call = asyncio.create_task(api.get("cm", "one"))
        # It is sent meanwhile, and the response is delayed for longer.
        assert not (await asyncio.wait([call], timeout=1))[0]
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        began = loop.time()
        assert (await api.get("cm", "one")).metadata.name == "one"
        return loop.time() - began

    assert asyncio.run(cancel()) < 20


@pytest.mark.kopf_embedded_only
@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="open files are counted in /proc")
def test_3_10_10_closed_clients_leave_no_connection_and_no_thread(cluster, config_map):
    async def use():
        async with kopf.connect(kubeconfig=cluster.kubeconfig) as api:
            await asyncio.gather(*(api.find("cm", f"n{i}") for i in range(5)))
            # The object is created before or after the list with which the watch begins.
            stream = api.watch("cm", fields={"metadata.name": "one"})
            pending = asyncio.ensure_future(anext(stream))
            await api.create(config_map)
            await pending
            await stream.aclose()
            await api.delete("cm", "one")
            abandoned = api.watch("cm")
            following = asyncio.ensure_future(anext(abandoned))
            await api.find("cm", "one")
        with pytest.raises((RuntimeError, StopAsyncIteration)):
            await following

    def use_in_a_thread():
        with kopf.connect_sync(kubeconfig=cluster.kubeconfig) as api:
            api.create(config_map)
            assert next(api.watch("cm", fields={"metadata.name": "one"})).type == "ADDED"
            api.delete("cm", "one")
        asyncio.run(use())

    def opened():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    before = opened()
    for _ in range(3):
        thread = threading.Thread(target=use_in_a_thread)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
    # The server closes its ends of the connections a moment later.
    deadline = time.monotonic() + 20
    while opened() > before and time.monotonic() < deadline:
        threading.Event().wait(0.05)
    assert opened() <= before


def test_a_closed_connection_cannot_be_used(cluster):
    with kopf.connect_sync(kubeconfig=cluster.kubeconfig) as api:
        assert api.server_version()
    with pytest.raises(RuntimeError, match="closed"):
        api.server_version()

    async def use():
        async with kopf.connect(kubeconfig=cluster.kubeconfig) as api:
            assert await api.server_version()
        with pytest.raises(RuntimeError, match="closed"):
            await api.server_version()

    asyncio.run(use())
