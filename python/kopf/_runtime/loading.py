"""How the author's files and modules are loaded. It owns their names and paths; it must not know what is in
them.
"""

from __future__ import annotations

import importlib
import importlib.util
import os.path
import sys
from collections.abc import Iterable


def preload(paths: Iterable[str], modules: Iterable[str]) -> None:
    """Execute the files and import the modules, in order to have their handlers declared.

    The folders of the files are put in front of the import path, so that the files can import their
    neighbours. Errors of loading and of the code itself are raised as they are; a file of an unknown kind is
    an
    `ImportError`.
    """
    for idx, path in enumerate(paths):
        sys.path.insert(0, os.path.abspath(os.path.dirname(path)))
        name = f"__kopf_script_{idx}__{path}"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"Failed loading {path}: no module or loader.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    for name in modules:
        importlib.import_module(name)
