"""The addresses of the status server, its heartbeats, and the settings of the checks."""

import asyncio
import time
import types

import kopf
import pytest
from kopf._intents.serialization import serialize_settings
from kopf._runtime import status
from kopf._runtime.errors import OperationalError


class Engine:
    """Collects heartbeats."""

    def __init__(self) -> None:
        self.calls = []
        self.arrived = asyncio.Event()

    def heartbeat(self, calls, threads):
        assert threads == (1, 2, 3)
        self.calls.append(calls)
        if len(self.calls) == 3:
            self.arrived.set()


def heartbeat(engine, running=()):
    pool = types.SimpleNamespace(load=lambda: (1, 2, 3))
    invoker = types.SimpleNamespace(running=dict(enumerate(running)), pool=pool)
    return status.Heartbeat(engine, invoker, asyncio.get_running_loop())


def test_the_event_loop_sends_heartbeats_until_the_end(monkeypatch):
    monkeypatch.setattr(status, "INTERVAL", 0.001)

    async def main():
        engine = Engine()
        with heartbeat(engine) as beating:
            await asyncio.wait_for(engine.arrived.wait(), 30)
            assert not beating._next.cancelled()
        assert beating._next.cancelled()
        assert engine.calls[:3] == [[], [], []]

    asyncio.run(main())


def test_heartbeats_have_the_ages_of_all_calls_apart_from_daemons():
    registry = kopf.OperatorRegistry()
    kopf.daemon("things", registry=registry)(lambda **_: None)
    kopf.on.create("things", id="create", registry=registry)(lambda **_: None)
    daemon = registry._spawning.get_all_handlers()[0]
    change = registry._changing.get_all_handlers()[0]
    now = time.monotonic()

    async def main(*running):
        engine = Engine()
        with heartbeat(engine, running):
            [calls] = engine.calls
        return calls

    calls = [(daemon, None, now - 900), (change, None, now - 30), (change, None, now)]
    ages = dict(reversed(asyncio.run(main(*calls))))
    assert 30 <= ages["create"] < 60 and len(asyncio.run(main(*calls))) == 2
    assert asyncio.run(main(*calls[:1])) == []


def test_heartbeats_have_ids_that_can_be_sent():
    registry = kopf.OperatorRegistry()
    kopf.on.probe(id="\udcff", registry=registry)(lambda **_: None)
    [probe] = registry._activities.get_all_handlers()

    async def main():
        engine = Engine()
        with heartbeat(engine, [(probe, None, time.monotonic())]):
            [[(id, _)]] = engine.calls
        return id

    assert asyncio.run(main()) == "\\udcff"


@pytest.mark.parametrize("compat", [None, "1.45"])
def test_settings_of_the_checks_are_passed_only_if_they_are_used(compat):
    settings = kopf.OperatorSettings()
    settings.process.compat = compat
    assert "health" not in serialize_settings(settings)
    settings.health.loop_limit = None
    passed = serialize_settings(settings)["health"]
    assert passed["loop_limit"] is None and passed["deaf_limit"] == 300 and "address" not in passed


@pytest.mark.parametrize(
    "address", ["", "8080", "host", "host:", "host:x", "host:99999", "a@b:1", "h:1/path"]
)
def test_wrong_addresses_are_errors(address):
    with pytest.raises(OperationalError, match="is not an address such as"):
        status._parse_address(address)


def test_addresses_are_a_host_and_a_port():
    assert status._parse_address("0.0.0.0:8080") == ("0.0.0.0", 8080)
    assert status._parse_address("[::1]:80") == ("::1", 80)


def test_an_address_of_a_startup_handler_replaces_that_of_the_probes():
    settings, moves = kopf.OperatorSettings(), []
    server = types.SimpleNamespace(serve_status_at=lambda *place: moves.append(place))
    status.move_status(server, settings)
    settings.health.address = "127.0.0.1:8080"
    status.move_status(server, settings)
    assert moves == [("127.0.0.1", 8080)]


def test_kopf_1_45_has_no_status_address():
    settings = kopf.OperatorSettings()
    settings.process.compat = "1.45"
    settings.health.address = "127.0.0.1:8080"
    with pytest.raises(OperationalError, match=r"Kopf 1\.45 has no status address"):
        status.start_status_server(None, None, settings)
