"""Report of the error that a command ends with: one paragraph, and a traceback of the author's code.

The last line is the address of the explanation, if the message is one of Kopf and the documentation is
public.

This module is loaded when a command fails. With `--debug`, the report contains the whole traceback. With JSON
logs, the report is one line of JSON.
"""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Iterable

import click

from kopf._cli.message_addresses import address_line
from kopf._intents.errors import HandlerRetriesError, HandlerTimeoutError
from kopf._objects.credentials import LoginError
from kopf._runtime import errors
from kopf._runtime.activities import ActivityError
from kopf._runtime.loaders import LoadingNote

logger = logging.getLogger("kopf._core.reactor.running")


def report(
    error: Exception, *, debug: bool = False, json: bool = False, urls: Iterable[str] | None = None
) -> int:
    """Show the error; return the exit code of the command.

    Args:
        error: The error that the command ends with.
        debug: Whether the whole traceback is shown.
        json: Whether the report is one line of JSON.
        urls: The URLs of the project, as in `address_line`; None: those of the distribution.
    """
    paragraph = explain(error)
    if is_of_kopf(error):
        paragraph += address_line(paragraph, urls)
    traced = debug or not errors.is_self_explanatory(error)
    if json:
        # One line, with the traceback in a field of it, as other errors are logged.
        tb = error.__traceback__ if debug else errors.author_traceback(error.__traceback__)
        logger.critical(paragraph, exc_info=(type(error), error, tb) if traced else None)
        return _exit_code(error)
    if traced:
        click.echo(format_traceback(error) if debug else format_author_traceback(error), err=True)
    click.echo(f"Error: {paragraph}", err=True)
    return _exit_code(error)


def _exit_code(error: Exception) -> int:
    return error.exit_code if isinstance(error, errors.OperationalError) else 1


def is_of_kopf(error: BaseException) -> bool:
    """Whether the message that explains the error is one of Kopf, rather than one of the author's code."""
    return bool(_loading_notes(error)) or isinstance(error, (errors.OperationalError, LoginError))


def _loading_notes(error: BaseException) -> list[LoadingNote]:
    return [note for note in getattr(error, "__notes__", ()) if isinstance(note, LoadingNote)]


def explain(error: BaseException) -> str:
    """Explain the failure, its cause, and how to fix it."""
    if notes := _loading_notes(error):
        return str(notes[-1])
    if isinstance(error, ActivityError):
        return _explain_activity(error)
    if isinstance(error, LoginError):
        return _explain_login(str(error))
    if isinstance(error, errors.OperationalError):
        return error.explanation or str(error) or repr(error)
    return f"{type(error).__name__}: {error}" if str(error) else repr(error)


def _explain_activity(error: ActivityError) -> str:
    failed = [(id, call_result) for id, call_result in error.outcomes.items() if call_result.outcome.failed]
    names = ", ".join(f"{id!r}" for id, _ in failed)
    activity = error.activity.value if error.activity is not None else "activity"
    what = f"The {activity} handler{'s' if len(failed) > 1 else ''} {names} failed for good"
    why = "; ".join(_reason(item.exception) for _, item in failed if item.exception is not None)
    result = {
        "startup": " The operator has not started.",
        "cleanup": " The operator has stopped without a complete cleanup.",
        "authentication": " The operator has no credentials.",
    }.get(activity, "")
    sentence = f"{what}: {why}" if why else what
    return f"{sentence.removesuffix('.')}.{result}"


def _reason(error: BaseException) -> str:
    """The error of the function, rather than that there are no more attempts because of it."""
    if isinstance(error, (HandlerRetriesError, HandlerTimeoutError)) and error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}"


def _explain_login(text: str) -> str:
    named = os.environ.get("KUBECONFIG")
    paths = [path for path in (named or "~/.kube/config").split(os.pathsep) if path]
    exists = any(os.path.exists(os.path.expanduser(path)) for path in paths)
    if "login handler has returned" in text and not exists:
        looked = (
            [f"$KUBECONFIG ({named}: does not exist)"]
            if named
            else ["$KUBECONFIG (not set)", "~/.kube/config (does not exist)"]
        )
        looked.append("the service account of a pod (not in a pod)")
        return f"{text} Looked for: {', '.join(looked)}. Without a cluster, try: kopf dev FILE"
    if named and "kubeconfig" in text.lower():
        return f"{text} ($KUBECONFIG is {named!r}.)"
    return text


def format_traceback(error: BaseException) -> str:
    """The traceback as Python shows it."""
    return "".join(traceback.format_exception(error))


def format_author_traceback(error: BaseException) -> str:
    """The traceback without the frames of Kopf; the whole one if it is not about the author's code."""
    is_loading = isinstance(error, (ImportError, SyntaxError))
    if not is_loading and not errors.has_author_frames(error):
        return format_traceback(error)
    found = traceback.TracebackException.from_exception(error)
    _prune(found, set())
    return "".join(found.format() if found.stack else found.format_exception_only())


def _prune(found: traceback.TracebackException, seen: set[int]) -> None:
    if id(found) in seen:
        return
    seen.add(id(found))
    shown = errors.author_range([frame.filename for frame in found.stack])
    frames = found.stack[shown] if shown is not None else []
    found.stack = traceback.StackSummary.from_list(frames)
    notes = getattr(found, "__notes__", None)
    if notes:
        found.__notes__ = [note for note in notes if not isinstance(note, LoadingNote)] or None
    for other in (found.__cause__, found.__context__):
        if other is not None:
            _prune(other, seen)
