"""Framework log lines about objects: each handler call writes one.

While only Kopf's handler is installed and nothing in `logging` is patched, native code writes the text
directly to the stream of that handler. Otherwise, the lines are logged as usual. Only `logging` creates log
records.

The reason is the cost: with a log record, a line takes several times as long, which is a large part of the
CPU time of ordinary operators.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import FunctionType

from kopf._intents.settings import OperatorSettings
from kopf._objects.bodies import Body
from kopf._objects.logging_types import Logger as AnyLogger
from kopf._runtime import loggers
from kopf._runtime.bridge import LineWriter, Log, Object
from kopf._runtime.call_fields import call_fields
from kopf._runtime.context import handling_var
from kopf._runtime.loggers import (
    FrameworkMessage,
    KopfStreamHandler,
    LocalObjectLogger,
    ObjectJsonFormatter,
    ObjectLogger,
    ObjectPrefixingJsonFormatter,
    ObjectPrefixingTextFormatter,
    ObjectTextFormatter,
    TerseObjectLogger,
    logger,
    object_of,
)
from kopf._runtime.posting import K8sPoster

_Classes = list[tuple[type, tuple[str, ...]]]

# The methods that a record passes on its way to the stream; agents replace some of them.
_FORMATTER_METHODS = ("format", "formatTime", "formatMessage")
_INSTANCES: _Classes = [
    (type(logger), ("log", "_log", "makeRecord", "handle", "filter", "callHandlers")),
    (KopfStreamHandler, ("handle", "filter", "emit", "format", "flush")),
    (ObjectTextFormatter, _FORMATTER_METHODS),
    (ObjectPrefixingTextFormatter, _FORMATTER_METHODS),
    (ObjectJsonFormatter, _FORMATTER_METHODS),
    (ObjectPrefixingJsonFormatter, _FORMATTER_METHODS),
]
_ADAPTERS: _Classes = [(cls, ("log",)) for cls in (ObjectLogger, LocalObjectLogger, TerseObjectLogger)]
_OTHERS: _Classes = [(logging.LogRecord, ("__init__", "getMessage")), (logging.Formatter, ("format",))]


def log_framework_line(adapter: AnyLogger, level: int, text: str) -> None:
    """Log a line of the framework; it has no arguments."""
    if isinstance(adapter, ObjectLogger):
        # The level is looked at here: native code needs several times as many instructions for this call.
        if not adapter.isEnabledFor(level):
            return
        source = object_of(adapter)
        if source is not None and _write(adapter, source, level, text):
            return
    adapter.log(level, FrameworkMessage(text))


def log_engine_line(
    entry: Log, about: Object, exc_info: BaseException | None, settings: OperatorSettings
) -> None:
    """Log a line of the engine about an object, as a part of the handling that it belongs to."""
    cls = ObjectLogger if entry.posted else LocalObjectLogger
    adapter = cls(body=Body(about), settings=settings)
    token = handling_var.set(entry)
    try:
        if exc_info is None:
            log_framework_line(adapter, entry.level, entry.text)
        else:
            adapter.log(entry.level, FrameworkMessage(entry.text), exc_info=exc_info)
    finally:
        handling_var.reset(token)


def _is_original(function: object) -> bool:
    return type(function) is FunctionType and any(
        function.__globals__ is vars(module) for module in (logging, loggers)
    )


_writer = LineWriter(logger, (_ADAPTERS, _INSTANCES, _OTHERS), KopfStreamHandler, K8sPoster, call_fields)
# Some agents replace methods before Kopf is imported; then all lines are logged as usual.
_IS_ORIGINAL = all(
    _is_original(getattr(cls, name)) for cls, names in [*_INSTANCES, *_ADAPTERS, *_OTHERS] for name in names
)
_write: Callable[..., bool] = _writer.write if _IS_ORIGINAL else lambda *_: False
