"""Garbage collection during the start of a command: disabled while modules are loaded, then without these
modules.

It is only for processes of the command line: other processes have garbage of their own.
"""

from __future__ import annotations

import gc

_is_own_process = False
_is_disabled = False


def disable_gc() -> None:
    """Do not collect until things are settled: this process is ours."""
    global _is_own_process, _is_disabled
    _is_own_process, _is_disabled = True, gc.isenabled()
    gc.disable()


def freeze_and_enable_gc() -> None:
    """What is loaded by now lives as long as the process, if that is ours: it is not looked at any more."""
    global _is_disabled
    if _is_own_process:
        gc.freeze()
    # Only once: the author's code may have switched it off since then.
    if _is_disabled:
        _is_disabled = False
        gc.enable()
