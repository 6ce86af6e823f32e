"""Modules that are imported just in case. It owns the putting off of their loading until somebody looks into
them; it must not know who.

`asyncio` imports `ssl` with the libraries behind it for connections of its own, but the engine connects by
itself. Most operators never need it; whoever does, notices nothing: the module is there, and is loaded by the
first look at what is in it, whichever thread takes it. It is so in processes of the command line only.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any

from kopf import _objects

_lock = threading.RLock()
_loading: set[str] = set()


class Deferred(ModuleType):
    """A module of which only the name and the place are known. Once it is loaded, it is like all others."""

    # The import system looks at `__spec__` and the like; the content is everything else. After the
    # loading, the class is another one, so that there is no `super()`.
    def __getattribute__(self, name: str) -> Any:
        if name == "__dict__":
            _load(self)
        return ModuleType.__getattribute__(self, name)

    def __getattr__(self, name: str) -> Any:
        _load(self)
        return ModuleType.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _load(self)
        ModuleType.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        _load(self)
        ModuleType.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        _load(self)
        return sorted(ModuleType.__dir__(self))


def _load(module: ModuleType) -> None:
    get = object.__getattribute__
    name: str = get(module, "__name__")
    with _lock:
        # If it is being loaded, it is by this thread, and what is there by now is what can be seen.
        if get(module, "__class__") is not Deferred or name in _loading:
            return
        _loading.add(name)
        try:
            get(module, "__spec__").loader.exec_module(module)
        finally:
            _loading.discard(name)
        ModuleType.__setattr__(module, "__class__", ModuleType)


def defer() -> None:
    """Import `asyncio` without what it imports just in case, and put off what only some operators need."""
    package = PathFinder.find_spec("asyncio")
    if "asyncio" in sys.modules or package is None or PathFinder.find_spec("_ssl") is None:
        return
    _put("ssl", None)
    _put("asyncio.sslproto", package.submodule_search_locations)
    import asyncio

    # The import system does so only for what it has loaded itself.
    asyncio.__dict__["sslproto"] = sys.modules["asyncio.sslproto"]
    _put("kopf._objects.credentials", _objects.__path__)
    _objects.__dict__["credentials"] = sys.modules["kopf._objects.credentials"]


def _put(name: str, path: Sequence[str] | None) -> None:
    spec = PathFinder.find_spec(name, path)
    if name not in sys.modules and spec is not None:
        module = module_from_spec(spec)
        module.__class__ = Deferred
        sys.modules[name] = module
