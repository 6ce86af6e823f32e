"""Handlers of one operator of a test: they are in its registry for as long as it runs."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import os
import threading
from collections.abc import Callable, Collection, Iterator
from typing import Any

from kopf._intents.handlers import ActivityHandler, Handler
from kopf._intents.registries import OperatorRegistry
from kopf._objects.credentials import ConnectionInfo
from kopf._objects.reasons import Activity
from kopf._objects.typedefs import HandlerId
from kopf._runtime.default_registry import get_default_registry, set_default_registry
from kopf._testing.handler_files import HandlerFiles

Handlers = str | os.PathLike[str] | Callable[[], Any]

connection_var: contextvars.ContextVar[ConnectionInfo] = contextvars.ContextVar("connection_var")
"""The connection of the operator: one registry can have operators of several clusters."""

# The default registry and the modules belong to the process: only one operator is loaded at a time.
_loading = threading.Lock()


class OperatorHandlers:
    """The files with handlers, and the functions that declare handlers, of one operator."""

    def __init__(self, sources: Collection[Handlers]) -> None:
        super().__init__()
        self._sources = sources
        self._files = HandlerFiles()
        self._withdrawals = contextlib.ExitStack()

    def load(self, registry: OperatorRegistry) -> None:
        """Declare the handlers in the registry, also a login handler if there is none."""
        __tracebackhide__ = True
        with _loading, contextlib.ExitStack() as stack:
            stack.callback(self._files.unload)
            with _withdrawing_later(registry, stack), _default_registry(registry):
                self._declare(registry)
                _ensure_login(registry)
            self._withdrawals = stack.pop_all()

    def unload(self) -> None:
        """Withdraw the handlers from the registry. The folders of the files are not importable any more."""
        with _loading:
            self._withdrawals.close()

    def _declare(self, registry: OperatorRegistry) -> None:
        __tracebackhide__ = True
        paths = [os.fspath(item) for item in self._sources if not callable(item)]
        for path in paths:
            if not os.path.isfile(path):
                raise FileNotFoundError(f"There is no file {path!r} with handlers in {os.getcwd()!r}.")
        self._files.load(paths)
        for declare in self._sources:
            if callable(declare):
                with _short_ids(registry):
                    declare()


def login_to_cluster(**_: Any) -> ConnectionInfo:
    """The login handler of operators without another one."""
    return connection_var.get()


def _ensure_login(registry: OperatorRegistry) -> None:
    # One of another operator does not count: it is withdrawn with that one.
    logins = registry._activities.get_handlers(Activity.AUTHENTICATION)
    if any(not item._fallback and item.fn is not login_to_cluster for item in logins):
        return
    registry._activities.append(
        ActivityHandler(
            id=HandlerId("login_to_cluster"),
            fn=login_to_cluster,
            param=None,
            errors=None,
            timeout=None,
            retries=None,
            backoff=None,
            activity=Activity.AUTHENTICATION,
            _fallback=False,
        )
    )


@contextlib.contextmanager
def _withdrawing_later(registry: OperatorRegistry, stack: contextlib.ExitStack) -> Iterator[None]:
    """Let the stack remove from the registry what is declared there in the block."""
    families = registry._families().values()
    counts = [len(family._handlers) for family in families]
    known_caches = set(registry._caches)
    try:
        yield
    finally:
        declared = [
            item for family, count in zip(families, counts, strict=True) for item in family._handlers[count:]
        ]
        stack.callback(_withdraw, registry, declared, registry._caches.keys() - known_caches)


def _withdraw(registry: OperatorRegistry, handlers: Collection[Handler], caches: Collection[str]) -> None:
    # Handlers of several operators can be equal.
    withdrawn = {id(handler) for handler in handlers}
    for family in registry._families().values():
        family._handlers = [handler for handler in family._handlers if id(handler) not in withdrawn]
    for cache in caches:
        registry._caches.pop(cache, None)


@contextlib.contextmanager
def _short_ids(registry: OperatorRegistry) -> Iterator[None]:
    """Let the functions which are declared in the block have their bare names for ids.

    They are local functions of tests: their full names are long, and change with the tests.
    """
    families = registry._families().values()
    before = [len(family._handlers) for family in families]
    yield
    for family, count in zip(families, before, strict=True):
        used = {handler.id: handler.fn for handler in family._handlers}
        for index, handler in enumerate(family._handlers[count:], start=count):
            short = HandlerId(handler.id.rpartition("<locals>.")[2])
            # If two functions have the same bare name, only the first one gets it.
            if used.setdefault(short, handler.fn) is handler.fn:
                family._handlers[index] = dataclasses.replace(handler, id=short)


@contextlib.contextmanager
def _default_registry(registry: OperatorRegistry) -> Iterator[None]:
    previous = get_default_registry()
    set_default_registry(registry)
    try:
        yield
    finally:
        set_default_registry(previous)
