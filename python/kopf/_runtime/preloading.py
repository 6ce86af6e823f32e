"""Loading of the modules that operators load on demand, for operators in the threads of tests."""

from __future__ import annotations

import functools
import importlib
import pkgutil

import kopf._intents
import kopf._runtime


@functools.cache
def load_modules() -> None:
    """Load all modules that an operator can need, in this thread.

    pytest parses the modules of its plugins when they are loaded for the first time. In CPython 3.11, two
    threads that parse at the same time can fail: "AST constructor recursion depth mismatch".
    """
    for package in (kopf._intents, kopf._runtime):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            importlib.import_module(module.name)
