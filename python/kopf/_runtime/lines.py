"""The framework's own lines about objects: each call of each handler has one.

They are formatted and written without log records where our own handler of the root logger is the only one
that would see the records, and nothing of `logging` is replaced. Else they are logged as any other line.
"""

from __future__ import annotations

import functools
import logging
import time
from types import FunctionType
from typing import Any

from kopf._objects.logformats import LogFormat
from kopf._objects.logs import Logger
from kopf._runtime.logs import (
    KopfStreamHandler,
    LocalObjectLogger,
    ObjectFormatter,
    ObjectLogger,
    ObjectPrefixingTextFormatter,
    ObjectTextFormatter,
    OwnLine,
    TerseObjectLogger,
    logger,
    one_line,
)


class Choosy(logging.Handler):
    """A handler that knows which lines it ignores before there is a record."""

    def ignores(self, level: int, settings: Any, *, local: bool) -> bool:
        """Whether lines of the level about an object are nothing to it; local ones are not to be posted."""
        return False


def say(adapter: Logger, level: int, text: str) -> None:
    """Log a line of the framework, which has no arguments."""
    if type(adapter) in _OURS and isinstance(adapter, ObjectLogger):
        if not adapter.isEnabledFor(level):
            return
        handler = _only_listener(adapter, level)
        if handler is not None and _write(handler, adapter, level, text):
            return
    adapter.log(level, OwnLine(text))


def _only_listener(adapter: ObjectLogger, level: int) -> KopfStreamHandler | None:
    """The handler that we have installed, if nothing else sees the record or how it is logged."""
    if _machinery() != _MACHINERY or not _IS_ORIGINAL or logger.filters:
        return None
    if type(logger) is not logging.Logger or not _METHODS.isdisjoint(vars(logger)):
        return None
    for other in logger.handlers:
        local = type(adapter) is not ObjectLogger
        if not isinstance(other, Choosy) or not other.ignores(level, adapter._settings, local=local):
            return None
    place: logging.Logger = logger
    while place.parent is not None:
        if not place.propagate:
            return None
        place = place.parent
        if place.handlers and place.parent is not None:
            return None
    if len(place.handlers) != 1:
        return None
    handler = place.handlers[0]
    return handler if type(handler) is KopfStreamHandler and not handler.filters else None


def _write(handler: KopfStreamHandler, adapter: ObjectLogger, level: int, text: str) -> bool:
    """Write the line as the formatter would make it of a record; false if that is not known."""
    formatter = handler.formatter
    kind = type(formatter)
    if not isinstance(formatter, ObjectFormatter) or type(formatter._style) is not logging.PercentStyle:
        return False
    if (kind is not ObjectPrefixingTextFormatter and kind is not ObjectTextFormatter) or formatter.datefmt:
        return False
    if level < handler.level:
        return True
    text = one_line(text)
    line = f"{adapter._prefix()} {text}" if kind is ObjectPrefixingTextFormatter else text
    if formatter._fmt == _FULL:
        created = time.time()
        moment = formatter._moment(created, created % 1 * 1000)
        line = f"[{moment}] {_origin(logging.getLevelName(level))} {line}"
    elif formatter._fmt != _PLAIN:
        return False
    handler.acquire()
    try:
        handler.stream.write(line + handler.terminator)
        handler.stream.flush()
    except RecursionError:
        raise
    except Exception:
        handler.handleError(logger.makeRecord(logger.name, level, __file__, 0, text, (), None))
    finally:
        handler.release()
    return True


@functools.lru_cache(maxsize=16)
def _origin(level: str) -> str:
    return f"{logger.name:<20.20} [{level:<8.8}]"


def _machinery() -> tuple[Any, ...]:
    # What observes applications puts its own functions here.
    cls, handler, formatter = logging.Logger, logging.Handler, logging.Formatter
    return (
        cls.handle,
        cls.callHandlers,
        cls.makeRecord,
        cls._log,
        logging.LoggerAdapter.log,
        handler.handle,
        handler.format,
        formatter.format,
        formatter.formatMessage,
        logging.getLogRecordFactory(),
        KopfStreamHandler.emit,
    )


def _is_original(function: Any) -> bool:
    return type(function) is FunctionType and function.__code__.co_filename == logging.__file__


_MACHINERY = _machinery()
_IS_ORIGINAL = _MACHINERY[-2] is logging.LogRecord and all(map(_is_original, _MACHINERY[:-2]))
_METHODS = frozenset({"handle", "callHandlers", "makeRecord", "_log", "log", "isEnabledFor"})
_FULL, _PLAIN = LogFormat.FULL.value, LogFormat.PLAIN.value
_OURS = frozenset({ObjectLogger, LocalObjectLogger, TerseObjectLogger})
