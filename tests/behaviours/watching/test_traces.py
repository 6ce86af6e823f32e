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
    r"status=200 duration=\d+\.\d{6}s cause=[0-9a-f]{8} cycle=\d+",
    r"watch: resource=widgets\.v1\.behaviours\.example\.com namespace=\S+ resource_version=\d+ "
    r"duration=\d+\.\d{6}s",
    r"cycle: cycle=\d+ resource=widgets\.v1\.behaviours\.example\.com namespace=default object=one event=\w+ "
    r"reason=create cause=[0-9a-f]{8} duration=\d+\.\d{6}s",
    r"activation: handlers=1 duration=\d+\.\d{6}s cycle=\d+ cause=[0-9a-f]{8}",
    r"call: handler=created retry=0 outcome=succeeded duration=\d+\.\d{6}s cycle=\d+ cause=[0-9a-f]{8}",
    r"call: handler=seen retry=0 outcome=succeeded duration=\d+\.\d{6}s cycle=\d+",
    r"write: resource=widgets\.v1\.behaviours\.example\.com namespace=default object=one reason=create "
    r"cause=[0-9a-f]{8} duration=\d+\.\d{6}s cycle=\d+",
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


RETRIED = """
import kopf

@kopf.on.create("widgets.behaviours.example.com")
def created(name, retry, memo, **_):
    if retry == 0:
        raise kopf.TemporaryError("again", delay=0.1)
    memo.calls.append(("created", name))

@kopf.timer("widgets.behaviours.example.com", interval=1000)
def ticked(name, memo, **_):
    memo.calls.append(("ticked", name))
"""


@pytest.mark.timeout(60)
def test_all_lines_of_a_handling_have_the_cause_of_its_log_lines(cluster, run, caplog):
    caplog.set_level(logging.DEBUG, logger="kopf.engine")
    running = run(source=RETRIED)
    cluster.create({"apiVersion": "behaviours.example.com/v1", "kind": "Widget", "metadata": {"name": "one"}})
    running.until("created")
    running.until("ticked")
    running.settle()
    running.stop()
    lines = lines_of(caplog)
    calls = [line for line in lines if line.startswith("call: handler=created ")]
    causes = [re.search(r"cause=(\w+)", line) for line in calls]
    assert [line.split()[3] for line in calls] == ["outcome=delayed", "outcome=succeeded"]
    assert all(causes) and len({found[1] for found in causes if found}) == 1
    cycles = [line for line in lines if line.startswith("cycle: ") and f"cause={causes[0][1]}" in line]
    assert len(cycles) == 2, "the lines of a cycle know its cause, also those of a retry"
    ticks = [line for line in lines if line.startswith("call: handler=ticked ")]
    assert len(ticks) == 1 and "cause=" not in ticks[0]
    assert any(
        re.match(r"daemon: run=\d+ resource=widgets\S+ namespace=default object=one ", x) for x in lines
    )


NESTED = """
import kopf

@kopf.on.create("widgets.behaviours.example.com")
async def created(name, namespace, api, memo, **_):
    await api.list("v1/pods", namespace=namespace)

    @kopf.subhandler()
    def part(**_):
        memo.calls.append(("part", name))

@kopf.on.reconcile("widgets.behaviours.example.com")
def reconciled(name, patch, memo, **_):
    patch.status["seen"] = True
    memo.calls.append(("reconciled", name))
"""


@pytest.mark.timeout(60)
def test_requests_and_sub_handlers_of_a_call_are_in_its_cycle_and_writes_of_reconcilers_in_their_run(
    cluster, run, caplog
):
    caplog.set_level(logging.DEBUG, logger="kopf.engine")
    running = run(source=NESTED)
    cluster.create({"apiVersion": "behaviours.example.com/v1", "kind": "Widget", "metadata": {"name": "one"}})
    running.until("part")
    running.until("reconciled")
    running.settle()
    running.stop()
    lines = lines_of(caplog)
    inside = r" outcome=succeeded duration=\S+ cycle=(\d+) cause=\w+"
    [part] = [
        found
        for line in lines
        if (found := re.fullmatch(r"call: handler=created/\S+ retry=0" + inside, line))
    ]
    [created] = [
        found for line in lines if (found := re.fullmatch(r"call: handler=created retry=0" + inside, line))
    ]
    pods = r"request: method=GET path=\S+/default/pods status=200 duration=\S+ cycle=(\d+) cause=\w+"
    [listed] = [found for line in lines if (found := re.fullmatch(pods, line))]
    assert part[1] == created[1] == listed[1]
    call = (
        r"reconciliation: run=(\d+) handler=reconciled resource=\S+ namespace=default object=one duration=\S+"
    )
    runs = {found[1] for line in lines if (found := re.fullmatch(call, line))}
    write = r"write: resource=\S+ namespace=default object=one duration=\S+ run=(\d+)"
    written = {found[1] for line in lines if (found := re.fullmatch(write, line))}
    assert written and written <= runs


@pytest.mark.timeout(60)
def test_there_are_no_traces_if_only_the_root_logger_is_verbose(cluster, run, secret, caplog):
    caplog.set_level(logging.DEBUG)
    # Its default; other tests of the process may have changed it.
    caplog.set_level(logging.INFO, logger="kopf.engine")
    observe(cluster, run, secret)
    assert lines_of(caplog) == []
    assert any(record.name == "kopf.objects" for record in caplog.records)
