"""Replicas that share a certificate by a Secret, with an API of the test."""

from __future__ import annotations

import asyncio
import copy
import datetime
import threading
import time
import types
from collections.abc import Callable
from typing import Any

import pytest
import trustme
from kopf._kits.webhooks import certificate_secrets
from kopf._kits.webhooks.certificate_secrets import CertificateSecret
from kopf._kits.webhooks.shared_certificates import CertificateSecretError
from kopf._objects.apierrors import AlreadyExists, Conflict, Forbidden, Unreachable

pytest.importorskip("kopf._kopf", reason="the native module is not built")

HOST = "ours.default.svc"
YEAR = 365 * 24 * 3600.0


AUTHORITY = trustme.CA()


def build(name: str) -> tuple[bytes, bytes]:
    """A certificate for ten years by the time of the replicas."""
    end = datetime.datetime.fromtimestamp(certificate_secrets.time.time() + 10 * YEAR, datetime.UTC)
    issued = AUTHORITY.issue_cert(name, not_after=end)
    return issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes()


class Api:
    """One Secret, as on a server."""

    def __init__(self) -> None:
        self.body: dict[str, Any] | None = None
        self.version = 0
        self.errors: dict[str, Exception] = {}
        self.before_write: Callable[[], None] = lambda: None

    async def find(self, kind: str, name: str, namespace: str | None) -> Any:
        self._begin("get")
        return copy.deepcopy(self.body)

    async def create(self, body: dict[str, Any], namespace: str | None) -> Any:
        self._begin("create")
        if self.body is not None:
            raise AlreadyExists("exists", code=409)
        return self._store(body)

    async def patch(self, kind: str, name: str, patch: Any, namespace: str | None, *, version: str) -> Any:
        self._begin("patch")
        assert self.body is not None
        if version != self.body["metadata"]["resourceVersion"]:
            raise Conflict("changed", code=409)
        body = copy.deepcopy(self.body)
        for target, changes in [
            (body["data"], patch["data"]),
            (body["metadata"]["annotations"], patch["metadata"]["annotations"]),
        ]:
            target.update(changes)
            for key in [key for key, value in target.items() if value is None]:
                del target[key]
        return self._store(body)

    def _begin(self, verb: str) -> None:
        if verb in self.errors:
            raise self.errors[verb]
        if verb != "get":
            before, self.before_write = self.before_write, lambda: None
            before()

    def _store(self, body: dict[str, Any]) -> Any:
        self.version += 1
        self.body = copy.deepcopy(body)
        self.body["metadata"]["resourceVersion"] = str(self.version)
        return copy.deepcopy(self.body)


class Replica(CertificateSecret):
    def __init__(self, api: Any, *, name: str = HOST, leads: bool = True) -> None:
        self.leads = leads
        super().__init__(
            "default/ours",
            api=api,
            may_write=lambda: self.leads,
            names=[name],
            build=lambda: build(name),
        )


@pytest.fixture
def api():
    return Api()


@pytest.fixture
def clock(monkeypatch):
    """The time of the replicas, which tests set."""
    clock = types.SimpleNamespace(now=time.time())
    monkeypatch.setattr(certificate_secrets, "time", types.SimpleNamespace(time=lambda: clock.now))
    return clock


def run(coroutine: Any) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, 60))


def run_in_thread(coroutine: Any) -> None:
    thread = threading.Thread(target=run, args=(coroutine,))
    thread.start()
    thread.join()


def test_the_first_replica_creates_the_secret_and_the_others_read_it(api, caplog):
    caplog.set_level("INFO")
    one, two = Replica(api), Replica(api)
    run(one.open())
    run(two.open())
    assert one.contents() == two.contents()
    assert api.version == 1
    assert caplog.messages == [
        "The Secret default/ours with the certificate of the webhook server is created."
    ]


def test_a_replica_that_is_slower_at_the_creation_reads_the_secret_of_the_other(api):
    one, two = Replica(api), Replica(api)
    api.before_write = lambda: run_in_thread(two.open())
    run(one.open())
    assert api.version == 1
    assert one.contents() == two.contents()


def test_only_the_leader_writes_and_the_others_serve_their_own_certificates_until_then(
    api, monkeypatch, caplog
):
    monkeypatch.setattr(certificate_secrets, "SETTLING", 0)
    leader, standby = Replica(api), Replica(api, leads=False)
    run(standby.open())
    assert api.version == 0 and standby.retry is not None
    assert "a certificate that the API server does not trust" in caplog.text
    own = standby.contents()
    assert own == standby.contents() and own["ca.crt"]
    run(leader.open())
    assert run(standby.poll()) and not run(standby.poll())
    assert standby.contents() == leader.contents() != own
    assert standby.retry is None


def test_a_replica_that_has_become_the_leader_puts_its_own_certificate_into_the_secret(api, monkeypatch):
    monkeypatch.setattr(certificate_secrets, "SETTLING", 0)
    replica = Replica(api, leads=False)
    run(replica.open())
    own = replica.contents()
    replica.leads = True
    assert run(replica.poll())
    assert replica.contents() == own, "the API server trusts it already"


def test_one_replica_renews_the_certificate_and_the_others_take_it_up(api, clock):
    one, two = Replica(api), Replica(api)
    run(one.open())
    run(two.open())
    before = one.contents()
    clock.now += 9.9 * YEAR
    api.before_write = lambda: run_in_thread(two.poll())
    assert run(one.poll()) and api.version == 2, "the other one was faster"
    assert one.contents() == two.contents()
    assert one.contents()["tls.crt"] == before["tls.crt"] and len(one.contents()["ca.crt"]) > len(
        before["ca.crt"]
    )
    clock.now += 1.5 * 24 * 3600
    assert run(two.poll()) and run(one.poll()) and api.version == 3
    assert one.contents() == two.contents()
    assert one.contents()["tls.crt"] != before["tls.crt"]
    assert before["ca.crt"] in one.contents()["ca.crt"]
    assert not run(one.poll()) and api.version == 3
    clock.now += 1.5 * 24 * 3600
    assert run(one.poll()) and run(two.poll()) and api.version == 4
    assert before["ca.crt"] not in one.contents()["ca.crt"] == two.contents()["ca.crt"]
    assert not run(one.poll()) and api.version == 4


def test_the_deletion_of_the_secret_replaces_the_certificate_without_failed_requests(api, clock):
    one, two = Replica(api), Replica(api)
    run(one.open())
    run(two.open())
    before = one.contents()
    api.body = None
    assert run(one.poll()) and run(two.poll())
    assert one.contents() == two.contents()
    assert one.contents()["tls.crt"] == before["tls.crt"]
    clock.now += 1.5 * 24 * 3600
    assert run(one.poll()) and run(two.poll())
    assert one.contents()["tls.crt"] == two.contents()["tls.crt"] != before["tls.crt"]


@pytest.mark.parametrize(
    "verb, rule",
    [
        ("get", "resources: [secrets], resourceNames: [ours], verbs: [get, patch]}"),
        ("create", "resources: [secrets], verbs: [create]}"),
    ],
)
def test_missing_permissions_are_named(api, verb, rule):
    api.errors[verb] = Forbidden("no", code=403)
    with pytest.raises(CertificateSecretError) as raised:
        run(Replica(api).open())
    text = (
        f"The webhook server has no permission to {verb} the Secret default/ours. Add this rule to the role"
    )
    assert str(raised.value).startswith(text) and rule in str(raised.value)


def test_a_failed_renewal_is_logged_once_and_the_certificate_stays_in_use(api, clock, caplog):
    replica = Replica(api)
    run(replica.open())
    before = replica.contents()
    clock.now += 9.9 * YEAR
    api.errors["patch"] = Forbidden("no", code=403)
    assert not run(replica.poll()) and not run(replica.poll())
    [line] = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert line.startswith("The webhook server has no permission to patch the Secret default/ours.")
    assert replica.contents() == before
    api.errors.clear()
    assert run(replica.poll())


def test_an_api_server_without_responses_delays_the_start_but_does_not_prevent_it(api, monkeypatch, caplog):
    monkeypatch.setattr(certificate_secrets, "SETTLING", 0)
    replica = Replica(api)
    api.errors["get"] = Unreachable("no connection")
    run(replica.open())
    assert replica.contents()["tls.crt"]
    assert (
        "The Secret default/ours of the webhook server cannot be read or written: no connection"
        in caplog.text
    )
    api.errors.clear()
    assert run(replica.poll())


def test_a_certificate_for_another_host_ends_the_start_but_not_a_running_server(api, caplog):
    run(Replica(api).open())
    with pytest.raises(CertificateSecretError, match=r"not for theirs\.default\.svc"):
        run(Replica(api, name="theirs.default.svc").open())
    running = Replica(other := Api())
    run(running.open())
    before = running.contents()
    other.body = None
    run(Replica(other, name="theirs.default.svc").open())
    assert not run(running.poll())
    assert f"not for {HOST}" in caplog.text
    assert running.contents() == before


def test_the_namespace_is_that_of_the_pod_unless_it_is_given(api, monkeypatch):
    options = {"api": api, "may_write": bool, "names": (), "build": lambda: (b"", b"")}
    assert CertificateSecret("ours", **options).place == "ours"
    monkeypatch.setenv("POD_NAMESPACE", "pods")
    assert CertificateSecret("ours", **options).place == "pods/ours"
    assert CertificateSecret("theirs/ours", **options).place == "theirs/ours"


def test_no_key_is_logged(api, clock, caplog):
    caplog.set_level("DEBUG")
    replica = Replica(api)
    run(replica.open())
    clock.now += 11 * YEAR
    run(replica.poll())
    key = replica.contents()["tls.key"].decode().splitlines()[1]
    assert caplog.text and key not in caplog.text
