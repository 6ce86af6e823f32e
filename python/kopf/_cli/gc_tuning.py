"""Garbage collection of a command: disabled while modules are loaded, then without these modules, and rarer
than by default.

It is only for processes of the command line: other processes have other garbage.
"""

from __future__ import annotations

import gc

YOUNG_OBJECTS = 10_000
"""The number of new objects after which they are collected, if the process does not have a higher one.

A batch of calls has some thousands of objects at a time, which are freed without the garbage collector.
"""

_is_own_process = False
_is_disabled = False


def disable_gc() -> None:
    """Disable garbage collection until the modules are loaded: this process is of a command."""
    global _is_own_process, _is_disabled
    _is_own_process, _is_disabled = True, gc.isenabled()
    gc.disable()
    young_objects = gc.get_threshold()[0]
    if young_objects:  # otherwise, it is switched off
        gc.set_threshold(max(young_objects, YOUNG_OBJECTS))


def freeze_and_enable_gc() -> None:
    """Exclude what is loaded from garbage collection, if this is a process of a command."""
    global _is_disabled
    if _is_own_process:
        gc.freeze()
    # Only once: the author's code may have switched it off since then.
    if _is_disabled:
        _is_disabled = False
        gc.enable()
