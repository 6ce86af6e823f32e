"""Functions that post Kubernetes events about objects.

They work in any thread with the context of a handler, and never wait. Outside of handlers, they raise
`LookupError`.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from kopf._objects import dicts
from kopf._objects.references import build_object_reference
from kopf._runtime.context import settings_var
from kopf._runtime.posting import Backoffs, enqueue


def event(
    objs: Any,
    *,
    type: str,
    reason: str,
    message: str = "",
    backoffs: Backoffs | None = None,
) -> None:
    """Post an event of any type about the object or objects, unless posting is disabled.

    Args:
        objs: An object, or nested iterables of objects, about which an event is posted each.
        type: The type of the event, such as `Normal`.
        reason: The reason: one word in CamelCase.
        message: The message for people.
        backoffs: The pauses in seconds between the attempts to post; by default,
            `settings.posting.default_backoffs`.

    Raises:
        LookupError: It is called outside of handlers.
    """
    if settings_var.get().posting.enabled:
        _post(objs, type, reason, message, backoffs)


def info(objs: Any, *, reason: str, message: str = "", backoffs: Backoffs | None = None) -> None:
    """Post an event of the type `Normal`, unless posting is disabled or limited to more severe ones.

    Args:
        objs: An object, or nested iterables of objects, about which an event is posted each.
        reason: The reason: one word in CamelCase.
        message: The message for people.
        backoffs: The pauses in seconds between the attempts to post; by default,
            `settings.posting.default_backoffs`.

    Raises:
        LookupError: It is called outside of handlers.
    """
    posting = settings_var.get().posting
    if posting.enabled and posting.level <= logging.INFO:
        _post(objs, "Normal", reason, message, backoffs)


def warn(objs: Any, *, reason: str, message: str = "", backoffs: Backoffs | None = None) -> None:
    """Post an event of the type `Warning`, unless limited to more severe ones; even if posting is
    disabled.

    Args:
        objs: An object, or nested iterables of objects, about which an event is posted each.
        reason: The reason: one word in CamelCase.
        message: The message for people.
        backoffs: The pauses in seconds between the attempts to post; by default,
            `settings.posting.default_backoffs`.

    Raises:
        LookupError: It is called outside of handlers.
    """
    if settings_var.get().posting.level <= logging.WARNING:
        _post(objs, "Warning", reason, message, backoffs)


def exception(
    objs: Any,
    *,
    reason: str = "",
    message: str = "",
    exc: BaseException | None = None,
    backoffs: Backoffs | None = None,
) -> None:
    """Post an event of the type `Error` about the exception: the given one, or the one that is
    being handled.

    Args:
        objs: An object, or nested iterables of objects, about which an event is posted each.
        reason: The reason: one word in CamelCase; by default, the name of the exception's class.
        message: A text in front of that of the exception.
        exc: The exception; by default, the one that is being handled.
        backoffs: The pauses in seconds between the attempts to post; by default,
            `settings.posting.default_backoffs`.

    Raises:
        LookupError: It is called outside of handlers.
    """
    exc = exc if exc is not None else sys.exc_info()[1]
    reason = reason or exc.__class__.__name__
    message = f"{message} {exc}" if message and exc else f"{exc}" if exc else f"{message}"
    posting = settings_var.get().posting
    if posting.enabled and posting.level <= logging.ERROR:
        _post(objs, "Error", reason, message, backoffs)


def _post(objs: Any, type: str, reason: str, message: str, backoffs: Backoffs | None) -> None:
    pauses = backoffs if backoffs is not None else settings_var.get().posting.default_backoffs
    for obj in dicts.walk(objs):
        enqueue(build_object_reference(obj), type=type, reason=reason, message=message, backoffs=pauses)
