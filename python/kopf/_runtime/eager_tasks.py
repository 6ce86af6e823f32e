"""Tasks that start at once where Python supports it: without waits, they need no turn of the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Callable, Coroutine
from typing import Any

_unbegun: dict[asyncio.Task[None], Callable[[asyncio.Task[None]], object]] = {}
"""The tasks that have not begun yet, with what is called if they never begin."""


def start_task(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, None],
    *,
    name: str,
    context: contextvars.Context,
    ended: Callable[[asyncio.Task[None]], object] | None = None,
) -> asyncio.Task[None]:
    """Run the coroutine in a new task and in this context; since Python 3.12, it begins at once.

    The loop's task factory is honoured. Then, the factory decides when the task begins.
    If the task begins later, something can cancel it before. Then nothing of the coroutine is executed, and
    `ended` is called instead. The coroutine must call `task_begins` first.
    """
    if loop.get_task_factory() is not None:
        task: asyncio.Task[None] = loop.create_task(coroutine, name=name, context=context)
    elif sys.version_info >= (3, 12):
        return asyncio.Task(coroutine, loop=loop, name=name, context=context, eager_start=True)
    else:
        task = asyncio.Task(coroutine, loop=loop, name=name, context=context)
    if ended is not None:
        _unbegun[task] = ended
        task.add_done_callback(_end_unbegun)
    return task


def task_begins() -> None:
    """Note that the current task executes its coroutine: `ended` is not called.

    A callback that remains would cost another turn of the event loop for each task.
    """
    if not _unbegun:
        return
    task = asyncio.current_task()
    if task is not None and _unbegun.pop(task, None) is not None:
        task.remove_done_callback(_end_unbegun)


def _end_unbegun(task: asyncio.Task[None]) -> None:
    _unbegun.pop(task)(task)
