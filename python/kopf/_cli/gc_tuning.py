"""Garbage collection during the start of a command: disabled while modules are loaded, then without these
modules.

It is only for processes of the command line: other processes have other garbage.
"""

from __future__ import annotations

import gc

_is_own_process = False
_is_disabled = False


def disable_gc() -> None:
    """Disable garbage collection until the modules are loaded: this process is of a command."""
    global _is_own_process, _is_disabled
    _is_own_process, _is_disabled = True, gc.isenabled()
    gc.disable()


def freeze_and_enable_gc() -> None:
    """Exclude what is loaded from garbage collection, if this is a process of a command."""
    global _is_disabled
    if _is_own_process:
        gc.freeze()
    # Only once: the author's code may have switched it off since then.
    if _is_disabled:
        _is_disabled = False
        gc.enable()
