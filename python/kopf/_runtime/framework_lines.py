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

from kopf._objects.logging_types import Logger as AnyLogger
from kopf._runtime import loggers
from kopf._runtime.bridge import LineWriter
from kopf._runtime.context import leadership_var
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
    # The level is looked at here: native code needs several times as many instructions for this call.
    if isinstance(adapter, ObjectLogger) and (
        not adapter.isEnabledFor(level) or _write(adapter, object_of(adapter), level, text)
    ):
        return
    adapter.log(level, FrameworkMessage(text))


def _is_original(function: object) -> bool:
    return type(function) is FunctionType and any(
        function.__globals__ is vars(module) for module in (logging, loggers)
    )


_writer = LineWriter(logger, (_ADAPTERS, _INSTANCES, _OTHERS), KopfStreamHandler, K8sPoster, leadership_var)
# Some agents replace methods before Kopf is imported; then all lines are logged as usual.
_IS_ORIGINAL = all(
    _is_original(getattr(cls, name)) for cls, names in [*_INSTANCES, *_ADAPTERS, *_OTHERS] for name in names
)
_write: Callable[..., bool] = _writer.write if _IS_ORIGINAL else lambda *_: False
