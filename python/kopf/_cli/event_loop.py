"""Event loop of the command line: uvloop if it is installed, else the default of asyncio."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def event_loop(
    suggested: asyncio.AbstractEventLoop | None = None,
) -> Iterator[asyncio.AbstractEventLoop | None]:
    """Give the suggested loop, or a loop of uvloop if it is installed, or None for the default of asyncio."""
    factory = _uvloop_factory() if suggested is None else None
    if factory is None:
        yield suggested
        return
    with asyncio.Runner(loop_factory=factory) as runner:
        yield runner.get_loop()


# Not within the block above: errors of the block are not caused by a missing uvloop.
def _uvloop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
