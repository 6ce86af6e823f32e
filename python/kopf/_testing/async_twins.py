"""Twins of blocking methods for asynchronous tests: the same arguments and results, to be awaited.

Each call runs the blocking method in a thread. Cancelling the call does not interrupt the method: it ends by
its own timeout.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from kopf._testing.api import ClusterApi

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def _twin(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        return await asyncio.to_thread(method, self._original, *args, **kwargs)

    functools.update_wrapper(call, method)
    return call


class AsyncCluster:
    """The blocking methods of a `Cluster`, to be awaited."""

    def __init__(self, cluster: ClusterApi) -> None:
        super().__init__()
        self._original = cluster

    call = _twin(ClusterApi.call)
    create = _twin(ClusterApi.create)
    apply = _twin(ClusterApi.apply)
    get = _twin(ClusterApi.get)
    find = _twin(ClusterApi.find)
    list = _twin(ClusterApi.list)
    patch = _twin(ClusterApi.patch)
    delete = _twin(ClusterApi.delete)
    events = _twin(ClusterApi.events)
    wait_for = _twin(ClusterApi.wait_for)
    wait_until_gone = _twin(ClusterApi.wait_until_gone)
    wait_until_idle = _twin(ClusterApi.wait_until_idle)
    script = _twin(ClusterApi.script)
    advance = _twin(ClusterApi.advance)


class BlockingOperator(Protocol):
    """The methods of an `Operator` that have twins."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def wait_until_idle(self, *, pause: float | None, timeout: float) -> None: ...


class AsyncOperator:
    """The blocking methods of an `Operator`, to be awaited."""

    def __init__(self, operator: BlockingOperator) -> None:
        super().__init__()
        self._original = operator

    async def start(self) -> None:
        """Load the handlers, and start; returns when the startup handlers have succeeded."""
        __tracebackhide__ = True
        await asyncio.to_thread(self._original.start)

    async def stop(self) -> None:
        """Stop gracefully; raises what the operator has ended with, if it is an error."""
        __tracebackhide__ = True
        await asyncio.to_thread(self._original.stop)

    async def wait_until_idle(self, *, pause: float | None = None, timeout: float = 30) -> None:
        """Wait until no handler runs, nothing is written, and nothing is on its way."""
        __tracebackhide__ = True
        await asyncio.to_thread(self._original.wait_until_idle, pause=pause, timeout=timeout)
