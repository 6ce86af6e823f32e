"""Files with handlers of the operators of tests, and the modules that they import from their folders."""

from __future__ import annotations

import contextlib
import importlib.machinery
import os.path
import sys
from collections import Counter
from collections.abc import Collection, Mapping
from types import ModuleType

from kopf._runtime import loaders

# Of all operators of the process, also of those that still run.
_loaded_modules: dict[str, ModuleType] = {}


class HandlerFiles:
    """The loaded files of one operator. Their folders are in the import path until they are unloaded.

    Modules in these folders are executed for each operator, as their handlers belong to its registry only.
    Modules that the test itself has imported before are left alone: the test can have changed them.

    Loading and unloading change `sys.path` and `sys.modules`: only one thread may do it at a time.
    """

    def __init__(self) -> None:
        super().__init__()
        self._folders: list[str] = []  # those that were added, by the files themselves too
        self._path: tuple[list[str], list[str]] = [], []  # the import path before and after the loading
        self._modules: dict[str, ModuleType] = {}

    def load(self, paths: Collection[str]) -> None:
        """Execute the files. Nothing stays loaded after an exception."""
        _remove(_loaded_modules)
        _loaded_modules.clear()
        known = set(sys.modules)
        before = list(sys.path)
        try:
            loaders.preload(paths=paths, modules=[])
        except BaseException:
            self._keep(known, before)
            self.unload()
            raise
        self._keep(known, before)
        _loaded_modules.update(self._modules)

    def unload(self) -> None:
        """Remove the folders from the import path, and the modules in them from the imported ones."""
        before, after = self._path
        if sys.path == after:
            sys.path[:] = before
        else:  # others have changed it meanwhile, such as another operator
            for folder in self._folders:
                with contextlib.suppress(ValueError):
                    sys.path.remove(folder)
        _remove(self._modules)
        self._folders, self._modules, self._path = [], {}, ([], [])

    def _keep(self, known: Collection[str], before: list[str]) -> None:
        self._path = before, list(sys.path)
        self._folders = list((Counter(sys.path) - Counter(before)).elements())
        self._modules = {
            name: module
            for name, module in list(sys.modules.items())
            if name not in known and _is_source(module) and _folder(name) in self._folders
        }


def _is_source(module: ModuleType) -> bool:
    """Whether the module can be executed again: extension modules cannot."""
    loader = getattr(getattr(module, "__spec__", None), "loader", None)
    return isinstance(loader, (importlib.machinery.SourceFileLoader, importlib.machinery.NamespaceLoader))


def _folder(name: str) -> str | None:
    """The folder of the import path in which the module or its top-level package is."""
    module = sys.modules.get(name.partition(".")[0])
    package_folders = list(getattr(module, "__path__", ()))
    path = package_folders[0] if package_folders else getattr(module, "__file__", None)
    return os.path.dirname(os.path.abspath(path)) if path else None


def _remove(modules: Mapping[str, ModuleType]) -> None:
    for name, module in modules.items():
        if sys.modules.get(name) is not module:
            continue
        del sys.modules[name]
        package, _, short = name.rpartition(".")
        if getattr(sys.modules.get(package), short, None) is module:
            delattr(sys.modules[package], short)
