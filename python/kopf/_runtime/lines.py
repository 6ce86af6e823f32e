"""The framework's own lines about objects: each call of each handler has one. It owns the short ways on which
they come to their listeners; nobody is to see that these are shorter.

Half of what logging costs is to find out from where and how something is logged, and most of the other half
is to make a record for somebody to look into. If nobody does, the text is written as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import threading
import time
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
    TerseObjectLogger,
    logger,
)


class Choosy(logging.Handler):
    """A handler that can tell what it has no interest in before there is a record."""

    def ignores(self, level: int, settings: Any, *, local: bool) -> bool:
        """Whether lines of the level about an object are nothing to it; local ones are not to be posted."""
        return False


def say(adapter: Logger, level: int, text: str) -> None:
    """Log a line of our own, which has no arguments: the same as `adapter.log()`, at a part of the price."""
    # Whoever makes loggers or records of their own is asked.
    is_usual = type(logger) is logging.Logger and logging.getLogRecordFactory() is logging.LogRecord
    if not isinstance(adapter, ObjectLogger) or type(adapter) not in _OURS or not is_usual:
        adapter.log(level, text)
        return
    if not adapter.isEnabledFor(level):
        return
    handler = _only_listener(adapter, level)
    if handler is not None and _write(handler, adapter, level, text):
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


def _only_listener(adapter: ObjectLogger, level: int) -> KopfStreamHandler | None:
    """The handler that we have installed, if nobody else sees the record or how it is logged."""
    if _machinery() != _MACHINERY or not _IS_USUAL or logger.filters:
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
        handler.handleError(logger.makeRecord(logger.name, level, __file__, 0, text, (), None, "say"))
    finally:
        handler.release()
    return True


@functools.lru_cache(maxsize=16)
def _origin(level: str) -> str:
    return f"{logger.name:<20.20} [{level:<8.8}]"


def _machinery() -> tuple[Any, ...]:
    # Tools that observe applications put their own functions here.
    return (
        logging.Logger.handle,
        logging.Logger.callHandlers,
        logging.Handler.handle,
        logging.Formatter.format,
        KopfStreamHandler.emit,
    )


_MACHINERY = _machinery()
_IS_USUAL = all(part.__module__ == "logging" for part in _MACHINERY[:-1])
_FULL, _PLAIN = LogFormat.FULL.value, LogFormat.PLAIN.value


@functools.lru_cache(maxsize=1)
def _pattern_of(pid: int) -> dict[str, Any]:
    made = logger.makeRecord(logger.name, 0, __file__, 0, "", (), None, "say")
    return vars(made)


def _pattern() -> dict[str, Any]:
    """What all records have in common that are made here in this process."""
    return _pattern_of(os.getpid())


_OURS = frozenset({ObjectLogger, LocalObjectLogger, TerseObjectLogger})
_STARTED = time.time() - logging.makeLogRecord({}).relativeCreated / 1000
