"""Framework log lines about objects: each handler call writes one.

While only Kopf's handler is installed and nothing in `logging` is patched, the text is written directly to
the stream of that handler. Otherwise, the lines are logged as usual. Only `logging` creates log records.

The reason is the cost: a log record with its adapter, filters and formatters takes two to three times as
long as the line written directly, which is 10 to 20 µs more. The handling of an object logs two or three such
lines, and takes a few hundred µs in all: this saves 5 to 10 % of the CPU of ordinary operators.
"""

from __future__ import annotations

import logging
from logging import Formatter, Handler, Logger, LoggerAdapter, LogRecord, StreamHandler
from operator import is_
from types import FunctionType

from kopf._objects.logging_types import Logger as AnyLogger
from kopf._runtime.loggers import (
    FrameworkMessage,
    KopfStreamHandler,
    LocalObjectLogger,
    ObjectLogger,
    ObjectPrefixingTextFormatter,
    ObjectTextFormatter,
    TerseObjectLogger,
    line_prefix,
    logger,
)
from kopf._runtime.posting import K8sPoster


def log_framework_line(adapter: AnyLogger, level: int, text: str) -> None:
    """Log a line of the framework; it has no arguments."""
    if type(adapter) in _ADAPTERS and isinstance(adapter, ObjectLogger):
        if not adapter.isEnabledFor(level):
            return
        handler = _sole_handler(adapter, level)
        if handler is not None and _write_text(handler, adapter, level, text):
            return
    adapter.log(level, FrameworkMessage(text))


def _sole_handler(adapter: ObjectLogger, level: int) -> KopfStreamHandler | None:
    """Kopf's handler of the root logger, if nothing else can observe the line."""
    if _is_patched():
        return None
    found: KopfStreamHandler | None = None
    current: Logger | None = logger
    while current is not None:
        for handler in current.handlers:
            if type(handler) is K8sPoster:
                if type(adapter) is ObjectLogger and handler.accepts(level, adapter.settings):
                    return None
            elif type(handler) is KopfStreamHandler and found is None and not handler.filters:
                found = handler
            else:
                return None
        current = current.parent if current.propagate else None
    return found


def _record_path() -> tuple[object, ...]:
    """The methods of `logging` that a record passes on its way to the stream; agents replace some of them."""
    return (
        LoggerAdapter.log,
        Logger.log,
        Logger._log,
        Logger.makeRecord,
        Logger.handle,
        Logger.callHandlers,
        Handler.handle,
        Handler.format,
        StreamHandler.emit,
        Formatter.format,
    )


def _is_patched() -> bool:
    return (
        not _IS_ORIGINAL
        # By identity: the wrappers of some agents are equal to what they wrap.
        or not all(map(is_, _record_path(), _RECORD_PATH))
        or logging.getLogRecordFactory() is not LogRecord
        or bool(logger.filters)
        or not _LOGGER_METHODS.isdisjoint(logger.__dict__)
    )


def _write_text(handler: KopfStreamHandler, adapter: ObjectLogger, level: int, text: str) -> bool:
    """Write the line as it would be formatted from a record; false if that needs a record."""
    formatter = handler.formatter
    if type(formatter) is not ObjectPrefixingTextFormatter and type(formatter) is not ObjectTextFormatter:
        return False
    if level < handler.level:
        return True
    line = formatter.format_line(level, line_prefix(adapter), text)
    if line is None:
        return False
    handler.acquire()
    try:
        handler.stream.write(line + handler.terminator)
        handler.stream.flush()
    except Exception:
        return False  # it is reported as `logging` does, when it fails there again
    finally:
        handler.release()
    return True


_ADAPTERS = frozenset({ObjectLogger, LocalObjectLogger, TerseObjectLogger})
_RECORD_PATH = _record_path()
_LOGGER_METHODS = frozenset({"log", "_log", "makeRecord", "handle", "callHandlers"})

# Some agents replace them before Kopf is imported; then all lines are logged as usual.
_IS_ORIGINAL = all(
    type(function) is FunctionType and function.__globals__ is vars(logging) for function in _RECORD_PATH
)
