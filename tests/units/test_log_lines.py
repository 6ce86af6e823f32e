"""Log lines of the framework itself: they are made on a short way, and nobody is to see that."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from kopf._intents.settings import OperatorSettings
from kopf._objects.bodies import Body
from kopf._runtime.logs import LocalObjectLogger, ObjectLogger, TerseObjectLogger, say

BODY = Body(
    {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "n", "namespace": "ns", "uid": "u"},
    }
)
# Of the moment, or of the place in the code.
OWN = {
    "asctime",
    "created",
    "msecs",
    "relativeCreated",
    "lineno",
    "funcName",
    "pathname",
    "filename",
    "module",
}


@pytest.mark.parametrize("cls", [ObjectLogger, LocalObjectLogger, TerseObjectLogger])
def test_records_are_the_same_on_the_short_way(cls: Any, caplog: pytest.LogCaptureFixture) -> None:
    adapter = cls(body=BODY, settings=OperatorSettings())
    with caplog.at_level(logging.DEBUG, logger="kopf.objects"):
        adapter.log(logging.WARNING, "a %s line")
        say(adapter, logging.WARNING, "a %s line")
    usual, short = (vars(record) for record in caplog.records)
    assert usual.keys() == short.keys()
    assert {key: usual[key] for key in usual.keys() - OWN} == {key: short[key] for key in short.keys() - OWN}
    assert abs(usual["relativeCreated"] - short["relativeCreated"]) < 60_000
    assert 0 <= short["msecs"] < 1_000
    assert short["created"] >= usual["created"]


def test_lines_below_the_level_are_not_made(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="kopf.objects"):
        say(ObjectLogger(body=BODY, settings=OperatorSettings()), logging.DEBUG, "debug")
        say(TerseObjectLogger(body=BODY, settings=OperatorSettings()), logging.INFO, "terse")
        say(ObjectLogger(body=BODY, settings=OperatorSettings()), logging.INFO, "info")
    assert [record.getMessage() for record in caplog.records] == ["info"]


def test_factories_of_records_are_asked(caplog: pytest.LogCaptureFixture) -> None:
    made: list[Any] = []
    usual = logging.getLogRecordFactory()

    def make(*args: Any, **kwargs: Any) -> logging.LogRecord:
        made.append(args)
        return usual(*args, **kwargs)

    logging.setLogRecordFactory(make)
    try:
        with caplog.at_level(logging.INFO, logger="kopf.objects"):
            say(ObjectLogger(body=BODY, settings=OperatorSettings()), logging.INFO, "info")
    finally:
        logging.setLogRecordFactory(usual)
    assert len(made) == len(caplog.records) == 1


def test_strange_loggers_are_used_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    adapter = logging.LoggerAdapter(logging.getLogger("elsewhere"), {"extra": 1})
    with caplog.at_level(logging.INFO):
        say(adapter, logging.INFO, "info")
    assert [record.name for record in caplog.records] == ["elsewhere"]
