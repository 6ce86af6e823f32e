"""The event loop of the command line. It owns the choice of its implementation."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def proper_loop(
    suggested: asyncio.AbstractEventLoop | None = None,
) -> Iterator[asyncio.AbstractEventLoop | None]:
    """Give the suggested loop, or a loop of uvloop if it is installed, or None for the default of asyncio."""
    if suggested is not None:
        yield suggested
        return
    try:
        import uvloop
    except ImportError:
        yield None
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield runner.get_loop()
