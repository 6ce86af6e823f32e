"""Stop flags and ready flags of embedded operators: futures and events of asyncio or threads."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from typing import Any

Flag = asyncio.Future[Any] | asyncio.Event | concurrent.futures.Future[Any] | threading.Event


async def wait_flag(flag: Flag | None) -> Any:
    """Wait until the flag is raised; get its value, or True if it cannot have any. Without a flag: None."""
    if flag is None:
        return None
    if isinstance(flag, asyncio.Future):
        return await asyncio.shield(flag)
    if isinstance(flag, asyncio.Event):
        return await flag.wait()
    if isinstance(flag, concurrent.futures.Future):
        return await asyncio.shield(asyncio.wrap_future(flag))
    if isinstance(flag, threading.Event):
        return await _wait_in_thread(flag)
    raise TypeError(f"Unsupported type of a flag: {flag!r}")


def is_raised(flag: Flag | None) -> bool:
    """Whether there is a flag, and it is raised."""
    if flag is None:
        return False
    return flag.is_set() if isinstance(flag, (asyncio.Event, threading.Event)) else flag.done()


def raise_flag(flag: Flag | None) -> None:
    """Raise the flag, if there is any."""
    if flag is None:
        return
    if isinstance(flag, (asyncio.Event, threading.Event)):
        flag.set()
    elif isinstance(flag, (asyncio.Future, concurrent.futures.Future)):
        if not flag.done():
            flag.set_result(None)
    else:
        raise TypeError(f"Unsupported type of a flag: {flag!r}")


# Not in an executor: the loop waits for its threads when it is closed, and this one can wait for ever.
async def _wait_in_thread(flag: threading.Event) -> bool:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[bool] = loop.create_future()

    def resolve() -> None:
        if not future.done():
            future.set_result(True)

    def wait() -> None:
        flag.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nothing waits
            loop.call_soon_threadsafe(resolve)

    threading.Thread(target=wait, name="kopf-flag", daemon=True).start()
    return await future
