"""Errors of an operator, and the tracebacks that are shown for them.

A traceback shows the author's frames. If the operator cannot work for another reason, such as missing
credentials, the message has instructions, and there is no traceback.
"""

from __future__ import annotations

import contextvars
import importlib.util
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

from kopf._intents.errors import TemporaryError

DEFAULT_DELAY = 60.0
"""The seconds before the next attempt after a `TemporaryError` without a usable delay."""

_KOPF = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_UVLOOP = "uvloop/"  # compiled by Cython: not a path in the file system
_THIRD_PARTY = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)


class OperationalError(Exception):
    """The operator cannot start or continue for a reason outside its code; the message has instructions."""

    exit_code = 1
    """The exit code of a command that ends with the error."""

    explanation: str | None = None
    """The paragraph at the end of a command, if the message has the format of Kopf 1.45."""


class EngineError(OperationalError, RuntimeError):
    """The engine has ended with this error."""


ENDING_ERRORS = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""Errors that end the process, the event loop, or a coroutine. All others are failures of the code that has
raised them, also if they are no `Exception`, such as panics of native libraries.
"""

error_observer_var: contextvars.ContextVar[Callable[[Any, BaseException], None] | None] = (
    contextvars.ContextVar("error_observer_var", default=None)
)
"""Gets each exception of a handler, with the handler: for tests, which fail by unexpected ones."""


def is_kopf_file(filename: str) -> bool:
    """Whether the file of a frame belongs to Kopf."""
    return filename.startswith(_KOPF)


def is_author_file(filename: str) -> bool:
    """Whether the file of a frame is neither of Kopf, nor of Python, nor of click or uvloop."""
    if filename.startswith(("<frozen ", _UVLOOP, _KOPF)):
        return False
    if filename.startswith(_STANDARD) and not any(part in filename for part in _THIRD_PARTY):
        return False
    return not filename.startswith(_folder_of_click())


def _folder_of_click() -> str:
    module = sys.modules.get("click")
    spec = module.__spec__ if module is not None else importlib.util.find_spec("click")
    return os.path.dirname(spec.origin or "") + os.sep if spec is not None else _KOPF


def traceback_links(tb: TracebackType | None) -> list[TracebackType]:
    """The links of a traceback, the outermost first."""
    links: list[TracebackType] = []
    while tb is not None:
        links.append(tb)
        tb = tb.tb_next
    return links


def author_range(filenames: list[str]) -> slice | None:
    """Which of the frames to show: from the author's outermost frame to the last one that is not of Kopf.

    None if there are no frames of the author.
    """
    first = next((i for i, name in enumerate(filenames) if is_author_file(name)), None)
    if first is None:
        return None
    last = max(i for i, name in enumerate(filenames) if not is_kopf_file(name))
    return slice(first, last + 1)


def author_traceback(tb: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames of Kopf around those of the author; as it is if there are none."""
    links = traceback_links(tb)
    shown = author_range([link.tb_frame.f_code.co_filename for link in links])
    if shown is None:
        return tb
    if shown.stop == len(links):
        outermost: TracebackType = links[shown.start]
        return outermost
    result: TracebackType | None = None
    for link in reversed(links[shown]):
        result = TracebackType(result, link.tb_frame, link.tb_lasti, link.tb_lineno)
    return result


def has_author_frames(error: BaseException) -> bool:
    """Whether the author's code takes part in the error, or in what has caused it."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        if author_range(
            [link.tb_frame.f_code.co_filename for link in traceback_links(current.__traceback__)]
        ):
            return True
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return False


def is_self_explanatory(error: BaseException) -> bool:
    """Whether the message of the error is sufficient without a traceback."""
    from kopf._objects.credentials import LoginError  # most operators never need it

    own = [link.tb_frame.f_code.co_filename for link in traceback_links(error.__traceback__)]
    return isinstance(error, (OperationalError, LoginError)) and author_range(own) is None


# What handlers get for reading only, and where its changes go.
_CHANGED_BY = {
    "Body": "patch[...]",
    "Meta": "patch.meta[...]",
    "Spec": "patch.spec[...]",
    "Status": "patch.status[...]",
    "MappingView": "patch.meta.labels[...] or patch.meta.annotations[...]",
}


def message_of(error: BaseException) -> str:
    """The message of an exception in log lines. That of a `KeyError` is only a key: the class is added."""
    message = text_of(error)
    if message and type(error).__str__ is KeyError.__str__:
        return f"{type(error).__name__}: {message}"
    return message or repr_of(error)


def text_of(value: object) -> str:
    """The text of a value, also if its own methods fail."""
    return _converted(value, str, repr)


def repr_of(value: object) -> str:
    """The representation of a value, also if its own method fails."""
    return _converted(value, repr)


def _converted(value: object, *conversions: Callable[[object], str]) -> str:
    for convert in conversions:
        try:
            return convert(value)
        except Exception:
            continue  # the line is more important
    return f"<{type(value).__name__}>"


def delay_of(error: TemporaryError) -> tuple[float | None, str]:
    """The delay of the error in seconds (None: at once), and a remark for the log if it has no usable one."""
    # Classes of authors do not always call the initialiser.
    delay = getattr(error, "delay", DEFAULT_DELAY)
    try:
        return (float(delay) if delay is not None else None), ""
    except (TypeError, ValueError, OverflowError):
        next_attempt = f"the next attempt follows in {DEFAULT_DELAY:g} seconds"
        return DEFAULT_DELAY, f" (delay={repr_of(delay)} is not a number of seconds: {next_attempt})"


def sendable(text: str) -> str:
    """The text as it can be encoded: surrogates, such as of undecodable names of files, are escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def add_hint(error: BaseException) -> None:
    """Add a note to the exception of a handler if it is a known mistake: it is shown after the traceback."""
    if type(error) is not TypeError:
        return
    name, _, rest = text_of(error).removeprefix("'").partition("' object does not support item ")
    if rest in ("assignment", "deletion") and name in _CHANGED_BY:
        error.add_note(
            f"Handlers change the object by the patch: {_CHANGED_BY[name]} = value (None removes)."
        )
