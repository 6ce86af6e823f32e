"""Tasks that begin at once where Python supports it: without waits, they need no turn of the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from kopf._runtime.bridge import TaskCoroutine


def start_task(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, object],
    *,
    name: str,
    context: contextvars.Context,
    unbegun: Callable[[], object] | None = None,
) -> asyncio.Task[Any]:
    """Run the coroutine in a new task and in this context; since Python 3.12, it begins at once.

    The loop's task factory is honoured. Then, the factory decides when the task begins.
    If the task begins later, something else can cancel it before its first step: then, nothing of the
    coroutine is executed, and `unbegun` is called. A `HandlerCall` reports this itself.
    """
    if sys.version_info >= (3, 12) and loop.get_task_factory() is None:
        return asyncio.Task(coroutine, loop=loop, name=name, context=context, eager_start=True)
    if unbegun is not None:
        coroutine = TaskCoroutine(coroutine, unbegun)
    return loop.create_task(coroutine, name=name, context=context)
