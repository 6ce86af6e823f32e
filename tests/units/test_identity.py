"""The identity of an operator: the pod, or user@host with the time and a random suffix."""

import getpass
import re
import socket

import pytest
from kopf._runtime.identity import detect_own_id


def known_as(monkeypatch, *names):
    monkeypatch.setattr(socket, "gethostbyaddr", lambda name: (names[0], list(names[1:]), []))


@pytest.fixture(autouse=True)
def place(monkeypatch):
    monkeypatch.delenv("POD_ID", raising=False)
    monkeypatch.setattr(getpass, "getuser", lambda: "me")
    monkeypatch.setattr(socket, "gethostname", lambda: "short")
    known_as(monkeypatch, "here.example.com")


def test_pods_have_their_names_and_people_have_theirs(monkeypatch):
    monkeypatch.setenv("POD_ID", "pod-1")
    assert detect_own_id(manual=False) == "pod-1"
    assert detect_own_id(manual=True) == "me@here.example.com"


def test_people_share_the_identity_of_their_pod_as_in_kopf_1_45(monkeypatch):
    monkeypatch.setenv("POD_ID", "pod-1")
    monkeypatch.setenv("KOPF_COMPAT", "1.45")
    assert detect_own_id(manual=True) == "pod-1"


def test_processes_are_distinguished():
    ids = {detect_own_id(manual=False) for _ in range(20)}
    assert len(ids) > 1
    assert all(re.fullmatch(r"me@here\.example\.com/\d{14}/[a-z0-9]{3}", id) for id in ids)


@pytest.mark.parametrize(
    ("fqdn", "host"),
    [
        ("1.0.0.127.in-addr.arpa", "short"),
        ("127.0.0.1", "short"),
        ("::ffff:127.0.0.1", "short"),
        ("localhost", "short"),
        ("laptop.local", "laptop"),
        ("laptop.localdomain", "laptop"),
    ],
)
def test_generic_names_are_not_used(monkeypatch, fqdn, host):
    known_as(monkeypatch, fqdn)
    assert detect_own_id(manual=True) == f"me@{host}"


def test_the_first_full_name_is_taken(monkeypatch):
    known_as(monkeypatch, "short", "other", "one.example.com", "two.example.com")
    assert detect_own_id(manual=True) == "me@one.example.com"


@pytest.mark.parametrize("error", [OSError, UnicodeError])
@pytest.mark.parametrize("host", ["short", "short.example.com"])
def test_unresolvable_hosts_use_their_hostname(monkeypatch, host, error):
    def fail(name):
        raise error("unknown")

    monkeypatch.setattr(socket, "gethostbyaddr", fail)
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    assert detect_own_id(manual=True) == f"me@{host}"


def test_the_system_is_asked_as_python_asks_it(monkeypatch):
    monkeypatch.undo()
    monkeypatch.delenv("POD_ID", raising=False)
    host = detect_own_id(manual=True).rpartition("@")[2]
    assert socket.getfqdn().startswith(host) or host == socket.gethostname()


def test_users_without_names_have_numbers(monkeypatch):
    def fail():
        raise KeyError("no such user")

    monkeypatch.setattr(getpass, "getuser", fail)
    assert re.fullmatch(r"\d+@here\.example\.com", detect_own_id(manual=True))
