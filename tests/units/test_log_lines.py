"""Log lines of the framework itself: log handlers and filters observe them as any other line."""

from __future__ import annotations

import datetime
import functools
import io
import json
import logging
import random
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest
from kopf._intents.settings import OperatorSettings
from kopf._objects.bodies import Body
from kopf._objects.log_formats import LogFormat
from kopf._runtime.bridge import Object
from kopf._runtime.context import handler_var, handling_var, leadership_var, retry_var
from kopf._runtime.framework_lines import log_framework_line
from kopf._runtime.loggers import (
    FrameworkMessage,
    LocalObjectLogger,
    ObjectLogger,
    TerseObjectLogger,
    configure,
    one_line,
)

NATIVE = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n", "namespace": "ns", "uid": "u"}}'
BODY = Body(Object.decode(NATIVE))
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
        log_framework_line(adapter, logging.WARNING, "a %s line")
    usual, short = (vars(record) for record in caplog.records)
    assert usual.keys() == short.keys()
    assert {key: usual[key] for key in usual.keys() - OWN} == {key: short[key] for key in short.keys() - OWN}
    assert abs(usual["relativeCreated"] - short["relativeCreated"]) < 60_000
    assert 0 <= short["msecs"] < 1_000
    assert short["created"] >= usual["created"]


def test_lines_below_the_level_are_not_made(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="kopf.objects"):
        log_framework_line(ObjectLogger(body=BODY, settings=OperatorSettings()), logging.DEBUG, "debug")
        log_framework_line(TerseObjectLogger(body=BODY, settings=OperatorSettings()), logging.INFO, "terse")
        log_framework_line(ObjectLogger(body=BODY, settings=OperatorSettings()), logging.INFO, "info")
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
            log_framework_line(ObjectLogger(body=BODY, settings=OperatorSettings()), logging.INFO, "info")
    finally:
        logging.setLogRecordFactory(usual)
    assert len(made) == len(caplog.records) == 1


def test_strange_loggers_are_used_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    adapter = logging.LoggerAdapter(logging.getLogger("elsewhere"), {"extra": 1})
    with caplog.at_level(logging.INFO):
        log_framework_line(adapter, logging.INFO, "info")
    assert [record.name for record in caplog.records] == ["elsewhere"]


CLUSTERED = '{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "uid": "u"}}'
BODIES = [json.loads(NATIVE), Object.decode(NATIVE), Object.decode(CLUSTERED), {}, Object.decode("{}")]


@pytest.fixture
def written() -> Iterator[Callable[..., io.StringIO]]:
    """Logging as in an operator, without other handlers; returns the written text."""
    root = logging.getLogger()
    level = root.level

    def install(**options: Any) -> io.StringIO:
        root.handlers.clear()  # those of the test runner, which are added for each test
        configure(**options)
        stream = io.StringIO()
        root.handlers[0].setStream(stream)  # type: ignore[attr-defined]
        return stream

    yield install
    root.handlers.clear()
    root.setLevel(level)


FORMATS = [
    *LogFormat,
    "%(levelno)s %(msg)s",
    "%(message)s at %(asctime)s",
    "%(asctime)-30s %(message)s",
    "100%% %(levelname)s: %(message)-40s|",
    "%(asctime)s %(asctime)s %(message)s",
    "%(message)s %(message)s",
    "%(asctime)s 100%% %(message)s of %(name)s",
]


@pytest.mark.parametrize("log_format", FORMATS)
@pytest.mark.parametrize("log_prefix", [True, False])
@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO, logging.WARNING, logging.CRITICAL, 25])
@pytest.mark.parametrize("body", BODIES)
def test_texts_are_the_same_on_all_ways(
    written: Callable[..., io.StringIO], log_format: Any, log_prefix: bool, level: int, body: Any
) -> None:
    stream = written(log_format=log_format, log_prefix=log_prefix)
    adapter = LocalObjectLogger(body=Body(body), settings=OperatorSettings())
    log_framework_line(adapter, level, "a %s line")  # before the first regular log record
    adapter.log(level, "a %s line")
    log_framework_line(adapter, level, "a %s line")
    moment = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[,.]\d+"
    texts = [re.sub(moment, "MOMENT", text) for text in stream.getvalue().splitlines()]
    assert len(texts) == (0 if level < logging.INFO else 3)
    assert len(set(texts)) <= 1


def test_levels_can_be_renamed(written: Callable[..., io.StringIO]) -> None:
    stream = written(log_format="%(levelname)s %(message)s")
    adapter = LocalObjectLogger(body=BODY, settings=OperatorSettings())
    log_framework_line(adapter, logging.INFO, "a line")
    logging.addLevelName(logging.INFO, "NOTE")
    try:
        log_framework_line(adapter, logging.INFO, "a line")
    finally:
        logging.addLevelName(logging.INFO, "INFO")
    assert stream.getvalue() == "INFO a line\nNOTE a line\n"


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The messages of the log records that are made from now on."""
    messages: list[Any] = []
    process = ObjectLogger.process

    def noting(adapter: ObjectLogger, msg: Any, kwargs: Any) -> Any:
        messages.append(msg)
        return process(adapter, msg, kwargs)

    monkeypatch.setattr(ObjectLogger, "process", noting)
    return messages


def test_lines_that_only_our_handler_sees_need_no_records(
    written: Callable[..., io.StringIO], recorded: list[Any]
) -> None:
    stream, settings = written(log_prefix=True), OperatorSettings()
    log_framework_line(LocalObjectLogger(body=BODY, settings=settings), logging.INFO, "local")
    settings.posting.loggers = False
    log_framework_line(ObjectLogger(body=BODY, settings=settings), logging.INFO, "posted elsewhere")
    first, second = stream.getvalue().splitlines()
    assert first.endswith("] [ns/n] local") and second.endswith("] [ns/n] posted elsewhere")
    assert not recorded


def test_logged_messages_of_handlers_do_not_slow_down_the_lines_after_them(
    written: Callable[..., io.StringIO], recorded: list[Any]
) -> None:
    stream, adapter = written(), LocalObjectLogger(body=BODY, settings=OperatorSettings())
    adapter.info("from the handler")
    log_framework_line(adapter, logging.INFO, "of the framework")
    assert stream.getvalue().count("\n") == 2
    assert recorded == ["from the handler"]


def add_to_extra(adapter: ObjectLogger) -> None:
    adapter.extra["tenant"] = "t"


def replace_extra(adapter: ObjectLogger) -> None:
    adapter.extra = {"tenant": "t"}


@pytest.mark.parametrize("change", [add_to_extra, replace_extra])
def test_changes_of_extra_are_in_the_lines(
    written: Callable[..., io.StringIO], change: Callable[[ObjectLogger], None]
) -> None:
    stream = written(log_format=LogFormat.JSON)
    adapter = LocalObjectLogger(body=BODY, settings=OperatorSettings())
    log_framework_line(adapter, logging.INFO, "before")
    change(adapter)
    log_framework_line(adapter, logging.INFO, "after")
    adapter.info("usual")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line.get("tenant") for line in lines] == [None, "t", "t"]
    assert lines[2].keys() == lines[1].keys()
    assert ("object" in lines[1]) == (change is add_to_extra)


def test_extra_can_be_empty(caplog: pytest.LogCaptureFixture) -> None:
    adapter = ObjectLogger(body=BODY, settings=OperatorSettings())
    adapter.extra = None
    with caplog.at_level(logging.INFO):
        log_framework_line(adapter, logging.INFO, "info")
    assert not hasattr(caplog.records[0], "k8s_ref")


def test_additions_to_logging_change_nothing(
    written: Callable[..., io.StringIO], monkeypatch: pytest.MonkeyPatch, recorded: list[Any]
) -> None:
    stream = written()
    monkeypatch.setattr(logging.Logger, "trace", lambda *_: None, raising=False)
    monkeypatch.setattr(logging.getLogger("kopf.objects"), "trace", lambda *_: None, raising=False)
    log_framework_line(LocalObjectLogger(body=BODY, settings=OperatorSettings()), logging.INFO, "info")
    assert stream.getvalue().count("\n") == 1 and not recorded


NAMES = ["n", "ns", "", "naïve", "名前", "a\nb", "a\x1b[0m", "\u2028", "100%s", "\U0001f600"]
TEXTS = [
    "Handler 'x' succeeded.",
    "",
    "a %s line of 100%",
    "tab\tand ünïcode \U0001f600 名前",
    "two\nlines\r",
    "\x00\x1b[31m\x7f\x85\x9f",
    "\u2028 and \u2029",
    "lone \udc80 surrogate",
    "x" * 1000,
]
# With all flags, and with fields that only records have.
CONVERSIONS = [
    "s",
    "-30s",
    "30s",
    "-8.8s",
    ".4s",
    "5.2s",
    "0s",
    ".0s",
    ".s",
    "-s",
    "05s",
    "+s",
    "--9s",
    "r",
    "d",
]
FIELDS = ["asctime", "name", "levelname", "message", "levelno", "msg", "thread", "k8s_ref", "nothing", ""]


def _random_format(numbers: random.Random) -> str:
    def conversion() -> str:
        name = numbers.choice(FIELDS if numbers.random() < 0.3 else FIELDS[:4])
        return f"%({name}){numbers.choice(CONVERSIONS if numbers.random() < 0.5 else ['s'])}"

    pieces = [numbers.choice([conversion(), conversion(), "%%", " ", "[ü]", "{}$"]) for _ in range(6)]
    return "".join([*pieces[:3], numbers.choice(["%(message)s", "%(message)-40.30s"]), *pieces[3:]])


@pytest.fixture
def restored_context() -> Iterator[None]:
    """Restores the variables of the context after the test."""
    variables: list[ContextVar[Any]] = [handling_var, handler_var, retry_var, leadership_var]
    tokens = [(variable, variable.set(None)) for variable in variables]
    yield
    for variable, token in tokens:
        variable.reset(token)


@pytest.mark.parametrize("seed", range(20))
def test_all_lines_are_formatted_as_records_are(
    restored_context: None,
    written: Callable[..., io.StringIO],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    recorded: list[Any],
    seed: int,
) -> None:
    numbers, settings, direct = random.Random(seed), OperatorSettings(), 0
    for _ in range(100):
        # Whole microseconds, but no whole milliseconds: since Python 3.13, records round nanoseconds.
        now = numbers.choice([0.0, 1.9999999, 1_700_000_000.0625, numbers.randrange(1, 2**38, 2) / 64])
        monkeypatch.setattr(time, "time", lambda now=now: now)
        monkeypatch.setattr(time, "time_ns", lambda now=now: int(now * 1e9))
        log_format = numbers.choice([LogFormat.FULL, LogFormat.JSON, _random_format(numbers)])
        refkey = numbers.choice([None, "k8s", 'ü"', "severity", "term", "cause", "retry"])
        try:
            written(log_format=log_format, log_prefix=numbers.choice([True, False]), log_refkey=refkey)
        except ValueError:
            continue  # `logging` has no such format
        metadata = {"name": numbers.choice(NAMES), "namespace": numbers.choice([*NAMES, None])}
        body = Body(Object.decode(json.dumps({"kind": numbers.choice(NAMES), "metadata": metadata})))
        leadership_var.set(numbers.choice([None, SimpleNamespace(identity=numbers.choice(NAMES), term=7)]))
        handling = numbers.choice([None, ("0a1b2c3d", "create")])
        handling_var.set(SimpleNamespace(handling=handling))
        handler_var.set(SimpleNamespace(id=numbers.choice(NAMES)))  # type: ignore[arg-type]
        retry_var.set(numbers.choice([None, 0, 3]))
        adapter = LocalObjectLogger(body=body, settings=settings)
        level, text = numbers.choice([20, 25, 30, 50]), numbers.choice(TEXTS)
        outputs = []
        encoding, errors = numbers.choice(["utf-8", "latin-1", "ascii", "utf-16"]), numbers.choice(ERRORS)
        for log in (log_framework_line, _log_record):
            raw, count = io.BytesIO(), len(recorded)
            logging.getLogger().handlers[0].setStream(  # type: ignore[attr-defined]
                io.TextIOWrapper(raw, encoding, errors, line_buffering=numbers.random() < 0.5)
            )
            log(adapter, level, text)
            direct += len(recorded) == count
            outputs.append((raw.getvalue(), capsys.readouterr().err.count("--- Logging error ---")))
        assert outputs[0] == outputs[1], (log_format, metadata, text)
    assert direct > 10


ERRORS = ["strict", "backslashreplace", "replace"]


def _log_record(adapter: ObjectLogger, level: int, text: str) -> None:
    adapter.log(level, FrameworkMessage(text))


class Listener(logging.Handler):
    """Another log handler."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.mark.parametrize("node", ["", "kopf", "kopf.objects"])
def test_other_listeners_get_records(written: Callable[..., io.StringIO], node: str) -> None:
    stream, listener = written(), Listener()
    logging.getLogger(node).addHandler(listener)
    try:
        log_framework_line(LocalObjectLogger(body=BODY, settings=OperatorSettings()), logging.INFO, "info")
    finally:
        logging.getLogger(node).removeHandler(listener)
    assert [record.getMessage() for record in listener.records] == ["info"]
    assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize("where", ["the logger", "the handler"])
def test_filters_see_records(written: Callable[..., io.StringIO], where: str) -> None:
    stream = written()
    filterer = logging.getLogger("kopf.objects") if where == "the logger" else logging.getLogger().handlers[0]

    def only_others(record: logging.LogRecord) -> bool:
        return record.k8s_ref["name"] != "n"  # type: ignore[attr-defined, no-any-return]

    filterer.addFilter(only_others)
    try:
        log_framework_line(LocalObjectLogger(body=BODY, settings=OperatorSettings()), logging.INFO, "info")
    finally:
        filterer.removeFilter(only_others)
    assert stream.getvalue() == ""


PATCHED = [
    (logging.Logger, "log"),
    (logging.Logger, "handle"),
    (logging.Logger, "callHandlers"),
    (logging.Logger, "makeRecord"),
    (logging.Logger, "_log"),
    (logging.LoggerAdapter, "log"),
    (logging.Handler, "handle"),
    (logging.Handler, "format"),
    (logging.Formatter, "format"),
    (logging.LogRecord, "__init__"),
    (logging.LogRecord, "getMessage"),
    (logging.StreamHandler, "emit"),
    (logging.getLogger("kopf.objects"), "log"),
    (logging.getLogger("kopf.objects"), "handle"),
    (logging.getLogger("kopf.objects"), "callHandlers"),
]


@pytest.mark.parametrize(("owner", "name"), PATCHED, ids=lambda value: getattr(value, "__name__", str(value)))
def test_functions_put_in_place_of_those_of_logging_are_called(
    written: Callable[..., io.StringIO], monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    stream, seen, usual = written(), [], getattr(owner, name)

    @functools.wraps(usual)
    def observed(*args: Any, **kwargs: Any) -> Any:
        seen.append(args)
        return usual(*args, **kwargs)

    monkeypatch.setattr(owner, name, observed)
    log_framework_line(LocalObjectLogger(body=BODY, settings=OperatorSettings()), logging.INFO, "info")
    assert seen and stream.getvalue().count("\n") == 1


AGENTS = {
    # As agents do which hook imports, before anything else is imported.
    "callHandlers": """
        def observe(wrapped, logger, record):
            seen.append((record.getMessage(), "k8s_ref" in vars(record)))
            return wrapped(logger, record)
        original = logging.Logger.callHandlers
        logging.Logger.callHandlers = functools.wraps(original)(lambda *args: observe(original, *args))
    """,
    # Each record gets the current trace.
    "makeRecord": """
        def observe(wrapped, *args, **kwargs):
            record = wrapped(*args, **kwargs)
            record.trace = len(seen)
            seen.append((record.getMessage(), record.trace))
            return record
        original = logging.Logger.makeRecord
        logging.Logger.makeRecord = functools.wraps(original)(lambda *a, **k: observe(original, *a, **k))
    """,
}


@pytest.mark.parametrize("hook", AGENTS)
def test_agents_that_have_patched_logging_before_the_import_see_each_line(hook: str) -> None:
    script = f"""
import functools, io, logging
seen = []
{textwrap.dedent(AGENTS[hook])}
import kopf
from kopf._runtime.bridge import Object
from kopf._runtime.framework_lines import log_framework_line
from kopf._runtime.loggers import LocalObjectLogger, configure
configure()
logging.getLogger().handlers[0].setStream(io.StringIO())
body = kopf.Body(Object.decode('{{"metadata": {{"name": "n"}}}}'))
for text in ("first", "second", "third"):
    log_framework_line(LocalObjectLogger(body=body, settings=kopf.OperatorSettings()), logging.INFO, text)
assert [text for text, _ in seen] == ["first", "second", "third"], seen
assert len(set(seen)) == 3
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_what_does_not_propagate_is_not_written(written: Callable[..., io.StringIO]) -> None:
    stream, logger = written(), logging.getLogger("kopf.objects")
    logger.propagate = False
    try:
        log_framework_line(LocalObjectLogger(body=BODY, settings=OperatorSettings()), logging.INFO, "info")
    finally:
        logger.propagate = True
    assert stream.getvalue() == ""


def test_broken_streams_are_reported_by_logging(
    written: Callable[..., io.StringIO], capsys: pytest.CaptureFixture[str]
) -> None:
    written().close()
    log_framework_line(LocalObjectLogger(body=BODY, settings=OperatorSettings()), logging.INFO, "info")
    error_output = capsys.readouterr().err
    assert "--- Logging error ---" in error_output and "Message: 'info'" in error_output


FORGED = "a name\n[2026-01-01 00:00:00,000] root                 [CRITICAL] forged \x1b[31m"
ESCAPED = "a name\\n[2026-01-01 00:00:00,000] root                 [CRITICAL] forged \\x1b[31m"


@pytest.mark.parametrize("short", [True, False])
@pytest.mark.parametrize("log_prefix", [True, False])
@pytest.mark.parametrize("log_format", [LogFormat.FULL, LogFormat.PLAIN, "%(message)s"])
def test_lines_of_the_framework_cannot_be_forged_by_what_they_quote(
    written: Callable[..., io.StringIO], log_format: Any, log_prefix: bool, short: bool
) -> None:
    stream, listener = written(log_format=log_format, log_prefix=log_prefix), Listener()
    if not short:
        logging.getLogger().addHandler(listener)
    body = Body({"metadata": {"name": FORGED, "namespace": "ns"}})
    log_framework_line(
        LocalObjectLogger(body=body, settings=OperatorSettings()), logging.INFO, f"Failed: {FORGED}"
    )
    [line] = stream.getvalue().splitlines()
    assert line.endswith(f"[ns/{ESCAPED}] Failed: {ESCAPED}" if log_prefix else f"Failed: {ESCAPED}")
    # Other log handlers have their own formats.
    assert [record.getMessage() for record in listener.records] == ([] if short else [f"Failed: {FORGED}"])


def test_lines_of_handlers_stay_as_they_are(written: Callable[..., io.StringIO]) -> None:
    stream = written(log_format=LogFormat.PLAIN, log_prefix=True)
    adapter = ObjectLogger(body=BODY, settings=OperatorSettings())
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        adapter.exception("one\ntwo %s", "\x1b[31mred")
    text = stream.getvalue()
    assert text.startswith("[ns/n] one\ntwo \x1b[31mred\nTraceback ") and text.endswith("first\nsecond\n")


def test_compatible_lines_are_not_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    assert one_line(FORGED) == ESCAPED and one_line("tab\tünïcode \U0001f600") == "tab\tünïcode \U0001f600"
    monkeypatch.setenv("KOPF_COMPAT", "1.45")
    assert one_line(FORGED) == FORGED


def test_json_lines_have_the_fields_of_mappings_and_moments_as_iso(
    written: Callable[..., io.StringIO],
) -> None:
    stream = written(log_format=LogFormat.JSON, log_prefix=None)
    adapter = ObjectLogger(body=BODY, settings=OperatorSettings())
    moment = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    adapter.info({"event": "started", "at": moment}, extra={"day": moment.date(), "time": moment.time()})
    log_framework_line(adapter, logging.INFO, FORGED)
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first["message"] == "" and first["event"] == "started"
    assert first["at"] == "2020-01-01T00:00:00+00:00"
    assert (first["day"], first["time"]) == ("2020-01-01", "00:00:00")
    assert first["object"]["name"] == "n" and first["severity"] == "info"
    assert second["message"] == FORGED
