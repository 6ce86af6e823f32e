"""The engine's traces: debug lines of the logger `kopf.engine`, without secrets."""

import base64
import logging
import re

import pytest

HANDLERS = """
import kopf

@kopf.on.create("widgets.behaviours.example.com")
def created(name, patch, memo, **_):
    patch.status["seen"] = True
    memo.calls.append(("created", name))

@kopf.on.event("secrets")
def seen(name, memo, **_):
    memo.calls.append(("seen", name))
"""
PLANT = "planted-in-a-secret"
EXPECTED = [
    r"request: method=GET path=/apis/behaviours\.example\.com/v1/\S*widgets status=200 duration=\d+\.\d{6}s",
    r"request: method=PATCH path=/apis/behaviours\.example\.com/v1/namespaces/default/widgets/one\S* "
    r"status=200 duration=\d+\.\d{6}s",
    r"watch: resource=widgets\.v1\.behaviours\.example\.com namespace=\S+ resource_version=\d+ "
    r"duration=\d+\.\d{6}s",
    r"cycle: cycle=\d+ resource=widgets\.v1\.behaviours\.example\.com namespace=default object=one event=\w+ "
    r"cause=create handlers=1",
]


def lines_of(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "kopf.engine"]


@pytest.fixture
def secret(cluster):
    data = {"key": base64.b64encode(PLANT.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one"}, "data": data}


def observe(cluster, run, secret):
    running = run(source=HANDLERS)
    cluster.create(secret)
    cluster.create({"apiVersion": "behaviours.example.com/v1", "kind": "Widget", "metadata": {"name": "one"}})
    running.until("created")
    running.until("seen")
    running.settle()
    running.stop()


@pytest.mark.timeout(60)
def test_requests_watches_and_cycles_are_traced_without_secrets(cluster, run, secret, caplog):
    caplog.set_level(logging.DEBUG, logger="kopf.engine")
    observe(cluster, run, secret)
    lines = lines_of(caplog)
    for expected in EXPECTED:
        assert any(re.fullmatch(expected, line) for line in lines), (expected, lines)
    assert {record.levelname for record in caplog.records if record.name == "kopf.engine"} == {"DEBUG"}
    text = "\n".join(lines)
    for planted in (PLANT, secret["data"]["key"], cluster.connection.token):
        assert planted and planted not in text
    # Selectors and continue tokens are in the query, which is left out.
    assert "?" not in text


@pytest.mark.timeout(60)
def test_there_are_no_traces_if_only_the_root_logger_is_verbose(cluster, run, secret, caplog):
    caplog.set_level(logging.DEBUG)
    # Its default; other tests of the process may have changed it.
    caplog.set_level(logging.INFO, logger="kopf.engine")
    observe(cluster, run, secret)
    assert lines_of(caplog) == []
    assert any(record.name == "kopf.objects" for record in caplog.records)
