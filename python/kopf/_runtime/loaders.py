"""Loading of the author's files and modules."""

from __future__ import annotations

import importlib
import importlib.util
import os.path
import sys
from collections.abc import Iterable

from kopf._intents import compatibility

_PREFIX = "__kopf_script_"

_INSTALLED_BY_KOPF = {
    "aiohttp": "aiohttp",
    "iso8601": "iso8601",
    "jsonpatch": "jsonpatch",
    "pythonjsonlogger": "python-json-logger",
}
"""The packages that Kopf 1.45 installs, by their modules: operators use them without requiring them."""


class LoadingNote(str):
    """A note of an exception on which file or module was being loaded, and what to do."""

    __slots__ = ()


def preload(paths: Iterable[str], modules: Iterable[str]) -> None:
    """Execute the files and import the modules, in order to have their handlers declared.

    The folders of the files are put in front of the import path, so that the files can import their
    neighbours. Errors of loading and of the code itself are raised as they are, with a note on the file. A
    file of an unknown kind is an `ImportError`.
    """
    for idx, path in enumerate(paths):
        try:
            _load(f"{_PREFIX}{idx}__{path}", path)
        except Exception as error:
            _add_note(error, _note_on_file(path, error))
            raise
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:
            _add_note(error, _note_on_module(name, error))
            raise


def _load(name: str, path: str) -> None:
    sys.path.insert(0, os.path.abspath(os.path.dirname(path)))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"Failed loading {path}: no module or loader.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def _add_note(error: Exception, note: LoadingNote) -> None:
    # Kopf 1.45 ends with the traceback of the error alone.
    if not compatibility.of_environment().keeps_errors_unchanged:
        error.add_note(note)


def _note_on_file(path: str, error: Exception) -> LoadingNote:
    if isinstance(error, ImportError) and _is_relative(error):
        folder, name = _module_name(path)
        where = f"PYTHONPATH={folder} " if folder else ""
        return LoadingNote(
            f"Cannot load {path}: it uses relative imports, and a file has no package to import from. "
            f"Run it as a module: {where}kopf run -m {name}"
        )
    return LoadingNote(f"Cannot load {path}: {_summary(error)}{_hint_on_package(error)}")


def _note_on_module(name: str, error: Exception) -> LoadingNote:
    if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
        return LoadingNote(
            f"There is no module {name!r}: {_summary(error)}. Is it installed, or its folder in PYTHONPATH?"
        )
    return LoadingNote(f"Cannot import the module {name!r}: {_summary(error)}{_hint_on_package(error)}")


def _hint_on_package(error: Exception) -> str:
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    package = _INSTALLED_BY_KOPF.get(missing or "")
    if package is None:
        return ""
    return f". Kopf 1.45 installs {package}, kopf-rs does not: add it to the requirements of the operator."


def _is_relative(error: ImportError) -> bool:
    return (error.name or "").startswith(_PREFIX) or "relative import" in str(error)


def _module_name(path: str) -> tuple[str, str]:
    """The folder to import from (empty for the current one), and the full name of the file's module."""
    folder, file = os.path.split(os.path.abspath(path))
    names = [os.path.splitext(file)[0]]
    while True:
        folder, package = os.path.split(folder)
        names.insert(0, package)
        if not package or not os.path.exists(os.path.join(folder, "__init__.py")):
            break
    name = ".".join(names).removesuffix(".__init__")
    return "" if folder == os.getcwd() else os.path.relpath(folder), name


def _summary(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
