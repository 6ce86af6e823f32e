"""Log lines of the framework itself: they are made on a short way, and nobody is to see that."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kopf._intents.settings import OperatorSettings
from kopf._objects.bodies import Body
from kopf._objects.logformats import LogFormat
from kopf._runtime import lines
from kopf._runtime.bridge import Object
from kopf._runtime.lines import say
from kopf._runtime.logs import LocalObjectLogger, ObjectLogger, TerseObjectLogger, configure

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


NATIVE = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n", "namespace": "ns", "uid": "u"}}'
CLUSTERED = Body({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "uid": "u"}})


@pytest.fixture
def written() -> Iterator[Callable[..., io.StringIO]]:
    """Logging as an operator has it, with nobody else who listens; what it has written."""
    root = logging.getLogger()
    level = root.level

    def install(**options: Any) -> io.StringIO:
        root.handlers.clear()  # those of the test runner, which come for each test anew
        configure(**options)
        stream = io.StringIO()
        root.handlers[0].setStream(stream)  # type: ignore[attr-defined]
        return stream

    yield install
    root.handlers.clear()
    root.setLevel(level)


@pytest.mark.parametrize("log_format", [*LogFormat, "%(levelno)s %(msg)s"])
@pytest.mark.parametrize("log_prefix", [True, False])
@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO, logging.WARNING, logging.CRITICAL, 25])
@pytest.mark.parametrize("body", [BODY, Body(Object.decode(NATIVE)), CLUSTERED, Body({})])
def test_texts_are_the_same_on_all_ways(
    written: Callable[..., io.StringIO], log_format: Any, log_prefix: bool, level: int, body: Body
) -> None:
    stream = written(log_format=log_format, log_prefix=log_prefix)
    adapter = LocalObjectLogger(body=body, settings=OperatorSettings())
    say(adapter, level, "a %s line")  # before anything else has made the reference
    adapter.log(level, "a %s line")
    say(adapter, level, "a %s line")
    moment = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[,.]\d+"
    texts = [re.sub(moment, "MOMENT", text) for text in stream.getvalue().splitlines()]
    assert len(texts) == (0 if level < logging.INFO else 3)
    assert len(set(texts)) <= 1


def test_the_shortest_way_makes_no_records(
    written: Callable[..., io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = written()
    monkeypatch.setattr(lines, "_pattern", lambda: pytest.fail("A record was made."))
    settings = OperatorSettings()
    say(LocalObjectLogger(body=BODY, settings=settings), logging.INFO, "local")
    settings.posting.loggers = False
    say(ObjectLogger(body=BODY, settings=settings), logging.INFO, "posted elsewhere")
    assert stream.getvalue().count("\n") == 2


class Listener(logging.Handler):
    """Whoever else listens."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(record)


@pytest.mark.parametrize("place", ["", "kopf", "kopf.objects"])
def test_other_listeners_get_records(written: Callable[..., io.StringIO], place: str) -> None:
    stream, listener = written(), Listener()
    logging.getLogger(place).addHandler(listener)
    try:
        say(LocalObjectLogger(body=BODY, settings=OperatorSettings()), logging.INFO, "info")
    finally:
        logging.getLogger(place).removeHandler(listener)
    assert [record.getMessage() for record in listener.heard] == ["info"]
    assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize("where", ["the logger", "the handler"])
def test_filters_see_records(written: Callable[..., io.StringIO], where: str) -> None:
    stream = written()
    filterer = logging.getLogger("kopf.objects") if where == "the logger" else logging.getLogger().handlers[0]

    def only_others(record: logging.LogRecord) -> bool:
        return record.k8s_ref["name"] != "n"  # type: ignore[attr-defined, no-any-return]

    filterer.addFilter(only_others)
    try:
        say(LocalObjectLogger(body=BODY, settings=OperatorSettings()), logging.INFO, "info")
    finally:
        filterer.removeFilter(only_others)
    assert stream.getvalue() == ""


def test_tools_that_observe_all_logging_do(
    written: Callable[..., io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, seen, usual = written(), [], logging.Logger.callHandlers

    def observed(self: logging.Logger, record: logging.LogRecord) -> None:
        seen.append(record.getMessage())
        usual(self, record)

    monkeypatch.setattr(logging.Logger, "callHandlers", observed)
    say(LocalObjectLogger(body=BODY, settings=OperatorSettings()), logging.INFO, "info")
    assert seen == ["info"] and stream.getvalue().count("\n") == 1


def test_what_does_not_propagate_is_not_written(written: Callable[..., io.StringIO]) -> None:
    stream, logger = written(), logging.getLogger("kopf.objects")
    logger.propagate = False
    try:
        say(LocalObjectLogger(body=BODY, settings=OperatorSettings()), logging.INFO, "info")
    finally:
        logger.propagate = True
    assert stream.getvalue() == ""


def test_broken_streams_are_told_of_as_usually(
    written: Callable[..., io.StringIO], capsys: pytest.CaptureFixture[str]
) -> None:
    written().close()
    say(LocalObjectLogger(body=BODY, settings=OperatorSettings()), logging.INFO, "info")
    told = capsys.readouterr().err
    assert "--- Logging error ---" in told and "Message: 'info'" in told
