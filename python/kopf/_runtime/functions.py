"""The functions of handlers: how they are called, where they are, and why their code is not executed."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any


def is_async_fn(fn: Callable[..., Any] | None) -> bool:
    """Whether the function is a coroutine function: itself, or what it wraps."""
    if isinstance(fn, functools.partial):
        return is_async_fn(fn.func)
    if fn is not None and hasattr(fn, "__wrapped__"):
        return is_async_fn(fn.__wrapped__)
    return inspect.iscoroutinefunction(fn)


def find_mistake(fn: Callable[..., Any]) -> str | None:
    """Why no call of the function executes its code, with advice; None if no reason is visible."""
    called = fn
    while isinstance(called, functools.partial):
        called = called.func
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        return f"{locate(fn)} is a generator, which Kopf does not iterate over: remove `yield` from it."
    if is_async_fn(fn):
        return None
    if inspect.iscoroutinefunction(called):
        return (
            f"{locate(fn)} is a synchronous function in a coroutine function, which Kopf does not await:"
            " declare it with `async def`, too, or wrap it without functools.wraps()."
        )
    if callable(called) and inspect.iscoroutinefunction(type(called).__call__):
        return (
            f"{locate(fn)} is an object whose __call__() is a coroutine function, which Kopf does not await:"
            " declare the method as the handler, as in kopf.on.create(...)(instance.__call__)."
        )
    return None


def ensure_executed(fn: Callable[..., Any], result: Any) -> None:
    """Raise `TypeError` if the function has returned a coroutine or a generator, which nothing executes."""
    if not isinstance(result, (Coroutine, Generator, AsyncGenerator)):
        return
    mistake = find_mistake(fn)
    if mistake is None and isinstance(result, Coroutine):
        mistake = (
            f"{locate(fn)} has returned a coroutine that nothing awaits:"
            " declare the function with `async def`, and await the coroutine in it."
        )
    elif mistake is None:
        mistake = f"{locate(fn)} has returned a generator that nothing iterates over: do so in the function."
    if not isinstance(result, AsyncGenerator):
        result.close()  # otherwise, Python warns of coroutines that are never awaited
    raise TypeError(mistake)


def locate(fn: Callable[..., Any]) -> str:
    """The function with its file and line, for messages."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    # Callable objects are named by their classes: their representations are not the same in each process.
    name = (getattr(fn, "__qualname__", None) or type(fn).__qualname__).rpartition("<locals>.")[2]
    called = fn if hasattr(fn, "__qualname__") else type(fn).__call__
    code = getattr(inspect.unwrap(called), "__code__", None)
    location = f" ({os.path.basename(code.co_filename)}:{code.co_firstlineno})" if code is not None else ""
    return f"{name}(){location}"
