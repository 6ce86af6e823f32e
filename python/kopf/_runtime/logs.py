"""How things are logged. It owns formats, prefixes, and the loggers of objects; it must not know who listens
to them.

A record about an object carries a reference to it (`k8s_ref`); formatters turn it to a prefix or to a field
of JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import functools
import json
import logging
import os
import threading
import time
from collections.abc import MutableMapping
from typing import Any, TextIO

from kopf._intents.settings import OperatorSettings
from kopf._objects.bodies import Body
from kopf._objects.logformats import LogFormat
from kopf._objects.logs import Logger
from kopf._runtime.bridge import Object

DEFAULT_JSON_REFKEY = "object"
RESERVED_EXTRAS = frozenset({"settings", "k8s_skip", "k8s_ref"})

_STANDARD_ATTRS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_SEVERITIES = (
    (logging.DEBUG, "debug"),
    (logging.INFO, "info"),
    (logging.WARNING, "warn"),
    (logging.ERROR, "error"),
)

logger = logging.getLogger("kopf.objects")


class ObjectFormatter(logging.Formatter):
    """The common class of all formatters here."""

    _second: tuple[int, str] = (-1, "")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """The same as usually, but a second is made into text only once: most of the lines come in bursts."""
        if datefmt is not None:
            return super().formatTime(record, datefmt)
        second = int(record.created)
        known, text = self._second
        if known != second:
            text = time.strftime(self.default_time_format, self.converter(second))
            self._second = (second, text)
        return f"{text},{int(record.msecs):03d}"


class ObjectTextFormatter(ObjectFormatter):
    """Formats records as text lines."""


class ObjectJsonFormatter(ObjectFormatter):
    """Formats records as JSON, one object per line: the message, extras, the time, the severity, and the
    object.
    """

    def __init__(self, *args: Any, refkey: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._refkey = refkey or DEFAULT_JSON_REFKEY

    def format(self, record: logging.LogRecord) -> str:
        """Make one line of JSON."""
        attrs = vars(record)
        fields: dict[str, Any] = {"message": record.getMessage()}
        fields |= {
            key: value
            for key, value in attrs.items()
            if key not in _STANDARD_ATTRS and key not in RESERVED_EXTRAS and not key.startswith("_")
        }
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            fields["exc_info"] = record.exc_text
        if record.stack_info:
            fields["stack_info"] = self.formatStack(record.stack_info)
        fields["timestamp"] = datetime.datetime.fromtimestamp(record.created, tz=datetime.UTC).isoformat()
        if "k8s_ref" in attrs:
            fields[self._refkey] = attrs["k8s_ref"]
        fields.setdefault("severity", _severity(record.levelno))
        return json.dumps(fields, default=str)


def _severity(level: int) -> str:
    for threshold, severity in _SEVERITIES:
        if level <= threshold:
            return severity
    return "fatal"


class ObjectPrefixingMixin(ObjectFormatter):
    """Puts the object's namespace and name in front of messages."""

    def format(self, record: logging.LogRecord) -> str:
        """Format the record with the prefix; the record itself is left as it was, for the other handlers."""
        ref = getattr(record, "k8s_ref", None)
        if not ref:
            return super().format(record)
        name, namespace = ref.get("name", ""), ref.get("namespace")
        prefix = f"[{namespace}/{name}]" if namespace else f"[{name}]"
        msg = record.msg
        # Handlers take their turns with a record, so that nobody sees this.
        record.msg = f"{prefix} {msg}"
        try:
            return super().format(record)
        finally:
            record.msg = msg


class ObjectPrefixingTextFormatter(ObjectPrefixingMixin, ObjectTextFormatter):
    """Formats records as text lines with prefixes."""


class ObjectPrefixingJsonFormatter(ObjectPrefixingMixin, ObjectJsonFormatter):
    """Formats records as JSON with prefixes in messages."""


class ObjectLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger of one object; its messages can become Kubernetes events, if the settings say so."""

    def __init__(self, *, body: Body, settings: OperatorSettings) -> None:
        self.logger = logger
        self._body = body
        self._settings = settings
        self._extra: dict[str, Any] | None = None

    # Most loggers never say anything: the reference is made when it is needed.
    @property
    def extra(self) -> dict[str, Any]:  # type: ignore[override]
        """What goes along with each message: the reference to the object, the settings."""
        if self._extra is None:
            self._extra = _extra(self._body, self._settings)
        return self._extra

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the reference to the object to what was given with the call."""
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


class LocalObjectLogger(ObjectLogger):
    """A logger of one object; its messages never become Kubernetes events."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the reference to the object, and the mark that the message is only for logs."""
        msg, kwargs = super().process(msg, kwargs)
        kwargs["extra"]["k8s_skip"] = True
        return msg, kwargs


class TerseObjectLogger(LocalObjectLogger):
    """A logger of one object for very frequent actions: its messages below warnings need one level more
    verbosity.
    """

    def isEnabledFor(self, level: int) -> bool:
        """Whether a message of the level is to be logged."""
        return super().isEnabledFor(level if level >= logging.WARNING else level - 10)


def _extra(body: Body, settings: OperatorSettings) -> dict[str, Any]:
    source = body._src
    if isinstance(source, Object):
        # The same, but without making anything of the metadata.
        ref = {
            "apiVersion": source.api_version,
            "kind": source.kind,
            "name": source.name,
            "uid": source.uid,
            "namespace": source.namespace,
        }
        return {"settings": settings, "k8s_skip": False, "k8s_ref": ref}
    metadata = body.metadata
    ref = {
        "apiVersion": body.get("apiVersion"),
        "kind": body.get("kind"),
        "name": metadata.get("name"),
        "uid": metadata.get("uid"),
        "namespace": metadata.get("namespace"),
    }
    return {"settings": settings, "k8s_skip": False, "k8s_ref": ref}


def say(adapter: Logger, level: int, text: str) -> None:
    """Log a line of our own, which has no arguments: the same as `adapter.log()`, at half of the price.

    Every call of every handler is logged, and half of that work is to find out from where and how it is.
    """
    # Whoever makes loggers or records of their own is asked.
    is_usual = type(logger) is logging.Logger and logging.getLogRecordFactory() is logging.LogRecord
    if isinstance(adapter, logging.Logger) or type(adapter) not in _OURS or not is_usual:
        adapter.log(level, text)
        return
    if not adapter.isEnabledFor(level):
        return
    kwargs: dict[str, Any] = {}
    adapter.process(text, kwargs)
    created = time.time()
    record = logging.LogRecord.__new__(logging.LogRecord)
    attrs = record.__dict__
    attrs.update(_pattern())
    attrs["msg"] = text
    attrs["levelno"] = level
    attrs["levelname"] = logging.getLevelName(level)
    attrs["created"] = created
    attrs["msecs"] = int((created % 1) * 1000) + 0.0
    attrs["relativeCreated"] = (created - _STARTED) * 1000
    if logging.logThreads:
        attrs["thread"] = threading.get_ident()
        attrs["threadName"] = threading.current_thread().name
    if "taskName" in attrs and logging.logAsyncioTasks:  # type: ignore[attr-defined, unused-ignore]
        with contextlib.suppress(Exception):
            attrs["taskName"] = asyncio.current_task().get_name()  # type: ignore[union-attr]
    attrs.update(kwargs["extra"])
    logger.handle(record)


@functools.lru_cache(maxsize=1)
def _pattern_of(pid: int) -> dict[str, Any]:
    made = logger.makeRecord(logger.name, 0, __file__, 0, "", (), None, "say")
    return vars(made)


def _pattern() -> dict[str, Any]:
    """What all records have in common that are made here in this process."""
    return _pattern_of(os.getpid())


_OURS = frozenset({ObjectLogger, LocalObjectLogger, TerseObjectLogger})
_STARTED = time.time() - logging.makeLogRecord({}).relativeCreated / 1000


class _KopfStreamHandler(logging.StreamHandler[TextIO]):
    """The handler that we install, and that we replace when configured anew."""

    def emit(self, record: logging.LogRecord) -> None:
        """The same as usually, but the lock is not taken again for flushing: whoever is here has it."""
        try:
            line = self.format(record) + self.terminator
            stream = self.stream
            stream.write(line)
            stream.flush()
        except RecursionError:
            raise
        except Exception:
            self.handleError(record)


def configure(
    debug: bool | None = None,
    verbose: bool | None = None,
    quiet: bool | None = None,
    log_format: LogFormat | str = LogFormat.FULL,
    log_prefix: bool | None = False,
    log_refkey: str | None = None,
) -> None:
    """Set up the root logger: its level, and one handler to stderr.

    `log_format` is one of the known formats, or a %-format; anything else is a `ValueError`.
    `log_prefix` is whether messages begin with the object's name; None: for all formats but JSON.
    `log_refkey` is the key of the object in JSON.
    """
    formatter = make_formatter(log_format=log_format, log_prefix=log_prefix, log_refkey=log_refkey)
    handler = _KopfStreamHandler()
    handler.setFormatter(formatter)

    root = logging.getLogger()
    root.handlers[:] = [h for h in root.handlers if not isinstance(h, _KopfStreamHandler)]
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if debug or verbose else logging.WARNING if quiet else logging.INFO)

    # The event loop is too talkative for anything but debugging of the event loop.
    asyncio_logger = logging.getLogger("asyncio")
    asyncio_logger.propagate = bool(debug)
    if not debug:
        asyncio_logger.handlers[:] = [logging.NullHandler()]


def make_formatter(
    log_format: LogFormat | str = LogFormat.FULL,
    log_prefix: bool | None = False,
    log_refkey: str | None = None,
) -> ObjectFormatter:
    """Make the formatter for the options of `configure`."""
    prefixed = log_prefix if log_prefix is not None else log_format is not LogFormat.JSON
    if log_format is LogFormat.JSON:
        return (ObjectPrefixingJsonFormatter if prefixed else ObjectJsonFormatter)(refkey=log_refkey)
    fmt = log_format.value if isinstance(log_format, LogFormat) else log_format
    if not isinstance(fmt, str):
        raise ValueError(f"Unsupported log format: {log_format!r}")
    return (ObjectPrefixingTextFormatter if prefixed else ObjectTextFormatter)(fmt)
