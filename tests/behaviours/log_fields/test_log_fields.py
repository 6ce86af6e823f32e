"""The fields of JSON log lines that connect the lines of one handling: the cause, the reason, the handler."""

import asyncio
import io
import json
import logging
import os
import re
import signal

import kopf
import pytest
from kopf._runtime.loggers import make_formatter

from tests.support.commands import Command

pytestmark = pytest.mark.kopf_embedded_only

own_logger = logging.getLogger("author")


@pytest.fixture
def lines():
    """Returns the JSON lines so far, as `--log-format=json` writes them."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(make_formatter(kopf.LogFormat.JSON))
    root, level = logging.getLogger(), logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.removeHandler(handler)
    root.setLevel(level)


def call_of(line):
    return line.get("handler"), line.get("retry"), line.get("reason")


def test_all_lines_of_a_handling_have_its_cause(cluster, kopf_operator, make, lines):
    cluster.freeze()

    def handlers():
        @kopf.on.create("widgets")
        async def first(retry, **_):
            own_logger.info("first")
            if retry < 2:
                raise kopf.TemporaryError("not yet", delay=10)

        @kopf.on.create("widgets")
        def second(**_):
            own_logger.info("second")

            @kopf.subhandler(id="part")
            async def part(**_):
                own_logger.info("part")
                await asyncio.create_task(log_in_task())

        async def log_in_task():
            own_logger.info("task")

        @kopf.on.update("widgets")
        def change(logger, **_):
            logger.info("change")

    operator = kopf_operator(handlers, allow_errors=())
    make()
    cluster.advance(60)
    created = [line for line in lines() if line.get("reason") == "create"]
    assert len({line["cause"] for line in created}) == 1
    assert re.fullmatch("[0-9a-f]{8}", created[0]["cause"])
    own = [(line["message"], *call_of(line)) for line in created if line["message"].isalpha()]
    assert sorted(own) == [
        ("first", "first", 0, "create"),
        ("first", "first", 1, "create"),
        ("first", "first", 2, "create"),
        ("part", "second/part", 0, "create"),
        ("second", "second", 0, "create"),
        ("task", "second/part", 0, "create"),
    ]
    calls = {line["message"]: call_of(line) for line in created}
    assert calls["Handler 'first' is invoked."] == ("first", 2, "create")
    assert calls["Handler 'first' failed temporarily: not yet"] == ("first", 1, "create")
    assert calls["Handler 'second' succeeded."] == ("second", 0, "create")
    assert calls["Handler 'second/part' succeeded."] == ("second/part", 0, "create")
    assert calls["Creation is processed: 2 succeeded; 0 failed."] == (None, None, "create")
    patches = [line for line in created if line["message"].startswith("Merge-patching the resource with: ")]
    assert patches
    assert all(call_of(line) == (None, None, "create") for line in patches)

    cluster.patch("widgets", "one", {"spec": {"size": 2}})
    operator.wait_until_idle()
    updated = [line for line in lines() if line.get("reason") == "update"]
    assert ("change", ("change", 0, "update")) in [(line["message"], call_of(line)) for line in updated]
    assert len({line["cause"] for line in updated}) == 1
    assert updated[0]["cause"] != created[0]["cause"]


def test_other_calls_have_their_handler_and_no_cause(cluster, kopf_operator, make, lines):
    cluster.freeze()

    def is_handled(**_):
        own_logger.info("filter")
        return True

    def handlers():
        @kopf.on.event("widgets")
        async def seen(**_):
            own_logger.info("event")

        @kopf.on.event("widgets", when=is_handled)
        async def guarded(**_):
            own_logger.info("guarded")

        @kopf.timer("widgets", interval=10)
        def tick(retry, **_):
            own_logger.info("timer")
            if retry < 1:
                raise kopf.TemporaryError("not yet", delay=1)

        @kopf.on.startup()
        async def begin(**_):
            own_logger.info("startup")

    kopf_operator(handlers)
    make()
    cluster.advance(5)
    assert not [line for line in lines() if "cause" in line or "reason" in line]
    own = [(line["message"], line.get("handler"), line.get("retry")) for line in lines()]
    assert ("startup", "begin", 0) in own
    assert ("event", "seen", 0) in own
    assert ("guarded", "guarded", 0) in own
    assert [line for line in own if line[0] == "timer"] == [("timer", "tick", 0), ("timer", "tick", 1)]
    filters = [line for line in own if line[0] == "filter"]
    assert filters
    assert set(filters) == {("filter", None, None)}


def test_fields_of_the_author_take_precedence(cluster, kopf_operator, make, lines):
    def handlers():
        @kopf.on.create("widgets")
        async def create(logger, **_):
            logger.info("mine", extra={"cause": "mine", "retry": "never"})

    operator = kopf_operator(handlers)
    make()
    operator.wait_until_idle()
    (line,) = [line for line in lines() if line["message"] == "mine"]
    assert (line["cause"], line["retry"], line["handler"]) == ("mine", "never", "create")


HANDLERS = """
import pathlib
import kopf

@kopf.on.create("widgets")
def create(**_):
    if not pathlib.Path("ready").exists():
        raise kopf.TemporaryError("not yet", delay=0.2)
"""


def test_the_cause_is_the_same_after_a_crash(cluster, make, tmp_path):
    """TRA-7."""
    (tmp_path / "retrying.py").write_text(HANDLERS)
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}

    def begin():
        return Command(tmp_path, "run", "retrying.py", "-A", "--log-format=json", environment=environment)

    first = begin()
    make()
    first.until('"retry": 1')
    retried = json.loads(first.until("failed temporarily"))
    first.process.send_signal(signal.SIGKILL)
    first.process.wait(60)
    first.close()
    (tmp_path / "ready").touch()
    second = begin()
    processed = json.loads(second.until("Creation is processed"))
    assert second.stop() == 0
    assert processed["cause"] == retried["cause"]
    succeeded = json.loads(next(line for line in second.seen if "create' succeeded." in line))
    assert succeeded["cause"] == retried["cause"]
    assert (succeeded["handler"], succeeded["reason"]) == ("create", "create")
    assert succeeded["retry"] >= retried["retry"]
