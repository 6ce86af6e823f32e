"""Supervision of the root tasks of an operator: they end together, with their errors, and in time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Coroutine
from typing import Any

from kopf._intents import compatibility
from kopf._runtime import errors
from kopf._runtime.work_tracking import work_tracker_var

Task = asyncio.Task[Any]

HUNG_TASKS_TIMEOUT = 5.0

_LOGGED_MARK = "_kopf_logged"

logger = logging.getLogger("kopf._core.reactor.running")


async def run_tasks(root_tasks: Collection[Task], *, ignored: Collection[Task] = frozenset()) -> None:
    """Wait until any of the operator's tasks ends, and end them all, and all others started since then.

    Raises the error of the task that failed, if any did.

    Args:
        root_tasks: The tasks of the operator: the result of `spawn_tasks`.
        ignored: Tasks that are not ended: those that ran before the operator was started.
    """
    try:
        await asyncio.wait(root_tasks, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        await _stop(root_tasks, title="Root", cancelled=True)
        await cancel_remaining(root_tasks, ignored)
        raise
    await _stop([task for task in root_tasks if not task.done()], title="Root", cancelled=False)
    await cancel_remaining(root_tasks, ignored)
    for task in root_tasks:
        if task.done() and not task.cancelled():
            error = task.exception()
            if error is not None:
                raise error


async def _stop(tasks: Collection[Task], *, title: str, cancelled: bool) -> None:
    if not tasks:
        logger.debug(f"{title} tasks stopping is skipped: no tasks given.")
        return
    how = "cancelling" if cancelled else "finishing"
    pending = {task for task in tasks if not task.done()}
    for task in pending:
        task.cancel()
    while pending:
        try:
            await asyncio.wait(pending)
        except asyncio.CancelledError:
            # The caller waits no longer, e.g. by a timeout: cleanup handlers can be retried without an end.
            why = "double-cancelling at stopping" if cancelled else "cancelling at stopping"
            pending = {task for task in pending if not task.done()}
            logger.debug(f"{title} tasks are not stopped: {why}; tasks left: {pending!r}")
            _retrieve_errors(set(tasks) - pending)
            raise
        pending = {task for task in pending if not task.done()}
    logger.debug(f"{title} tasks are stopped: {how} normally; tasks left: {pending!r}")


# The tasks log their errors; the event loop would log them again.
def _retrieve_errors(tasks: Collection[Task]) -> None:
    for task in tasks:
        if not task.cancelled():
            task.exception()


async def cancel_remaining(root_tasks: Collection[Task], ignored: Collection[Task]) -> None:
    """Wait a little for all other tasks of the event loop, and cancel those that have not ended.

    Args:
        root_tasks: The tasks of the operator that have ended.
        ignored: Tasks that are not ended: those that ran before the operator was started.
    """
    remaining = asyncio.all_tasks() - set(root_tasks) - set(ignored) - {asyncio.current_task()}
    if remaining:
        tracker = work_tracker_var.get()
        if tracker is not None and tracker.clock is not None:
            ending = asyncio.ensure_future(asyncio.wait(remaining))
            await tracker.clock.wait_in_loop(ending, HUNG_TASKS_TIMEOUT, lambda: None)
            ending.cancel()
        else:
            await asyncio.wait(remaining, timeout=HUNG_TASKS_TIMEOUT)
    await _stop([task for task in remaining if not task.done()], title="Hung", cancelled=False)


async def supervise(name: str, coroutine: Coroutine[Any, Any, None], *, finishable: bool) -> None:
    """Run the coroutine, and log how it has ended.

    An error is logged once, even if it passes through several guards, and with a traceback only if the
    author's code, or a defect of Kopf, has caused it.
    """
    title = name[:1].upper() + name[1:]
    try:
        await coroutine
    except asyncio.CancelledError:
        logger.debug(f"{title} is cancelled.")
        raise
    except Exception as e:
        text = f"{title} has failed: {errors.text_of(e)}"
        if compatibility.of_environment().logs_whole_tracebacks:
            logger.exception(text)
        elif not getattr(e, _LOGGED_MARK, False):
            with contextlib.suppress(AttributeError):  # attributes of frozen dataclasses cannot be set
                setattr(e, _LOGGED_MARK, True)
            tb = errors.author_traceback(e.__traceback__)
            is_self_explanatory = errors.is_self_explanatory(e) and not logger.isEnabledFor(logging.DEBUG)
            logger.error(text, exc_info=None if is_self_explanatory else (type(e), e, tb))
        raise
    task = asyncio.current_task()
    if not finishable and not (task is not None and task.cancelling()):
        logger.warning(f"{title} has finished unexpectedly.")
