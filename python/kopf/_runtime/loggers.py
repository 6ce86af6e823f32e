"""Loggers of objects, log formatters, and the configuration of logging.

A log record about an object has a reference to it (`k8s_ref`). Formatters show it as a prefix or in JSON.
"""

from __future__ import annotations

import binascii
import datetime
import enum
import json
import logging
import time
import traceback
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import asdict, is_dataclass
from types import TracebackType
from typing import Any, TextIO, cast

from kopf._intents import compatibility
from kopf._intents.settings import OperatorSettings
from kopf._objects.bodies import Body, source_of
from kopf._objects.log_formats import LogFormat
from kopf._runtime.bridge import TRACES, LineFormat, Object
from kopf._runtime.call_fields import call_fields
from kopf._runtime.errors import text_of

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


class FrameworkMessage(str):
    """A line of the framework: always one line in text logs, also if it quotes text with line breaks."""

    __slots__ = ()


# Not a regular expression: to compile it takes a part of each start.
_CONTROL = (*range(0x09), *range(0x0A, 0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
_URL_SAFE = str.maketrans("+/", "-_")
_ESCAPES = {code: chr(code).encode("unicode_escape").decode("ascii") for code in _CONTROL}


def one_line(text: str) -> str:
    """The text with its control characters escaped, except tabs."""
    if text.isprintable() or compatibility.of_environment().keeps_control_characters:
        return text
    return text.translate(_ESCAPES)


class ObjectFormatter(logging.Formatter):
    """The common class of all formatters here."""

    is_prefixing = False
    line_format: LineFormat | None = None
    """The format of lines without records, if they can be formatted."""

    _cached_second: tuple[int, str] = (-1, "")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """The same as usually, but a second is made into text only once: most of the lines come in bursts."""
        if datefmt is not None:
            return super().formatTime(record, datefmt)
        return f"{self.format_second(int(record.created))},{int(record.msecs):03d}"

    def format_second(self, second: int) -> str:
        """Format the time in seconds since the epoch."""
        known, text = self._cached_second
        if known != second:
            text = time.strftime(self.default_time_format, self.converter(second))
            self._cached_second = (second, text)
        return text


class ObjectTextFormatter(ObjectFormatter):
    """Formats records as text lines."""

    def __init__(self, fmt: str | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(fmt, *args, **kwargs)
        if fmt is not None and not args and not kwargs:
            self.line_format = LineFormat.parse(fmt, self.is_prefixing)

    def format(self, record: logging.LogRecord) -> str:
        """Format the record. Lines of the framework cannot be continued or forged by what they quote."""
        msg = record.msg
        if type(msg) is not FrameworkMessage:
            return super().format(record)
        # Handlers take their turns with a record, so that no other one sees this.
        record.msg = one_line(msg)
        try:
            return super().format(record)
        finally:
            record.msg = msg


class ObjectJsonFormatter(ObjectFormatter):
    """Formats records as lines of JSON: the message, extras, the time, the severity, the object, the call.

    The fields of the call are those of `call_fields`, unless the author gives others.
    """

    def __init__(self, *args: Any, refkey: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._refkey = refkey or DEFAULT_JSON_REFKEY
        self.line_format = LineFormat.json(self._refkey, self.is_prefixing)

    def format(self, record: logging.LogRecord) -> str:
        """Make one line of JSON."""
        attrs = vars(record)
        fields: dict[str, Any]
        if isinstance(record.msg, Mapping) and not record.args:
            fields = {"message": "", **record.msg}
        else:
            fields = {"message": record.getMessage()}
        fields |= {
            key: value
            for key, value in attrs.items()
            if key not in _STANDARD_ATTRS and key not in RESERVED_EXTRAS and not key.startswith("_")
        }
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        # A message that is a mapping can have its own.
        if record.exc_text and not fields.get("exc_info"):
            fields["exc_info"] = record.exc_text
        if record.stack_info and not fields.get("stack_info"):
            fields["stack_info"] = self.formatStack(record.stack_info)
        fields["timestamp"] = datetime.datetime.fromtimestamp(record.created, tz=datetime.UTC).isoformat()
        if "k8s_ref" in attrs:
            fields[self._refkey] = attrs["k8s_ref"]
        fields.setdefault("severity", _severity(record.levelno))
        # Those of the author take precedence.
        for name, value in call_fields().items():
            fields.setdefault(name, value)
        return json.dumps(fields, default=_to_json)


def _to_json(value: Any) -> Any:
    """The value in a form that is closer to JSON: that of python-json-logger 4, which Kopf 1.45 uses."""
    match value:
        case datetime.date() | datetime.time():
            return value.isoformat()
        case BaseException():
            return f"{type(value).__name__}: {text_of(value)}"
        case TracebackType():
            return "".join(traceback.format_tb(value)).strip()
        case enum.Enum():
            return value.value
        case enum.EnumMeta():
            return [member.value for member in cast(Iterable[enum.Enum], value)]
        case type():
            return value.__name__
        case bytes() | bytearray():
            return binascii.b2a_base64(value, newline=False).decode().translate(_URL_SAFE)
        case Mapping():
            return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return text_of(value)


def _severity(level: int) -> str:
    for threshold, severity in _SEVERITIES:
        if level <= threshold:
            return severity
    return "fatal"


def full_name(namespace: str | None, name: str | None) -> str:
    """The name of an object with its namespace, if it has one."""
    return f"{namespace}/{name}" if namespace else f"{name}"


def object_name(ref: Mapping[str, Any]) -> str:
    """The full name of a referenced object, in one line."""
    return one_line(full_name(ref.get("namespace"), ref.get("name", "")))


class ObjectPrefixingMixin(ObjectFormatter):
    """Puts the object's namespace and name in front of messages."""

    is_prefixing = True

    def format(self, record: logging.LogRecord) -> str:
        """Format the record with the prefix; the record itself is left as it was, for the other handlers."""
        ref = getattr(record, "k8s_ref", None)
        if not ref:
            return super().format(record)
        prefix = f"[{object_name(ref)}]"
        msg = record.msg
        # Handlers take their turns with a record, so that no other one sees this.
        record.msg = type(msg)(f"{prefix} {msg}") if type(msg) is FrameworkMessage else f"{prefix} {msg}"
        try:
            return super().format(record)
        finally:
            record.msg = msg


class ObjectPrefixingTextFormatter(ObjectPrefixingMixin, ObjectTextFormatter):
    """Formats records as text lines with prefixes."""


class ObjectPrefixingJsonFormatter(ObjectPrefixingMixin, ObjectJsonFormatter):
    """Formats records as JSON with prefixes in messages."""


class ObjectLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger of one object; its messages can become Kubernetes events, if it is enabled in the settings.

    Args:
        body: The object of the log messages.
        settings: The settings of the operator.
    """

    def __init__(self, *, body: Body, settings: OperatorSettings) -> None:
        self.logger = logger
        self._body = body if isinstance(body, Body) else Body(body)
        self.settings = settings
        self._extra: Any = None
        self._is_extra_exposed = False

    # Most loggers log nothing: the extra is created when it is needed.
    @property
    def extra(self) -> dict[str, Any]:
        """What goes along with each message: the reference to the object, the settings, additions."""
        self._is_extra_exposed = True
        return cast("dict[str, Any]", extra_of(self))

    @extra.setter
    def extra(self, extra: Mapping[str, Any] | None) -> None:
        self._is_extra_exposed = True
        self._extra = extra if extra is not None else {}

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the reference to the object to what was given with the call.

        Args:
            msg: The message.
            kwargs: The keyword arguments of the call.
        """
        kwargs["extra"] = {**extra_of(self), **(kwargs.get("extra") or {})}
        return msg, kwargs


# Not methods: the public class has those of Kopf 1.45.
def object_of(adapter: ObjectLogger) -> Mapping[str, Any] | None:
    """The mapping with the values of the object; None if `extra` may have been changed."""
    return source_of(adapter._body) if not adapter._is_extra_exposed else None


def extra_of(adapter: ObjectLogger) -> Any:
    """The `extra` of the adapter, only to be read."""
    if adapter._extra is None:
        adapter._extra = _extra(adapter._body, adapter.settings)
    return adapter._extra


class LocalObjectLogger(ObjectLogger):
    """A logger of one object; its messages never become Kubernetes events."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the reference to the object, and the mark that the message is only for logs.

        Args:
            msg: The message.
            kwargs: The keyword arguments of the call.
        """
        msg, kwargs = super().process(msg, kwargs)
        kwargs["extra"]["k8s_skip"] = True
        return msg, kwargs


class TerseObjectLogger(LocalObjectLogger):
    """A logger of one object for very frequent actions: below warnings, it needs more verbosity."""

    def isEnabledFor(self, level: int) -> bool:
        """Whether a message of the level is to be logged."""
        return super().isEnabledFor(level if level >= logging.WARNING else level - 10)


def _extra(body: Body, settings: OperatorSettings) -> dict[str, Any]:
    source = source_of(body)
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


class KopfStreamHandler(logging.StreamHandler[TextIO]):
    """The handler that `configure` installs, and replaces when it is called again."""


def configure(
    debug: bool | None = None,
    verbose: bool | None = None,
    quiet: bool | None = None,
    log_format: LogFormat | str = LogFormat.FULL,
    log_prefix: bool | None = False,
    log_refkey: str | None = None,
) -> None:
    """Set up the root logger: its level, and one handler to stderr.

    Args:
        debug: Whether to log debug messages, also of the event loop and of the requests of the engine.
        verbose: Whether to log debug messages, without these.
        quiet: Whether to log only warnings and errors.
        log_format: One of the known formats, or a %-format.
        log_prefix: Whether messages begin with the name of the object; None: for all formats but JSON.
        log_refkey: The key of the object in JSON; None: `object`.

    Raises:
        ValueError: The format is neither known nor a %-format.
    """
    formatter = make_formatter(log_format=log_format, log_prefix=log_prefix, log_refkey=log_refkey)
    handler = KopfStreamHandler()
    handler.setFormatter(formatter)

    root = logging.getLogger()
    root.handlers[:] = [h for h in root.handlers if not isinstance(h, KopfStreamHandler)]
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if debug or verbose else logging.WARNING if quiet else logging.INFO)

    # The event loop is too talkative for anything but debugging of the event loop.
    asyncio_logger = logging.getLogger("asyncio")
    asyncio_logger.propagate = bool(debug)
    if not debug:
        asyncio_logger.handlers[:] = [logging.NullHandler()]

    # So are the engine's traces: several lines per request.
    _trace_requests(bool(debug))


_former_level: int | None = None
"""The level of the engine's traces before they were enabled; None: they are not."""


def _trace_requests(is_enabled: bool) -> None:
    """Enable the engine's traces, or set their level back if an earlier call has enabled them."""
    global _former_level
    if is_enabled and _former_level is None:
        _former_level = TRACES.level
        TRACES.setLevel(logging.DEBUG)
    elif not is_enabled and _former_level is not None:
        TRACES.setLevel(_former_level)
        _former_level = None


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
