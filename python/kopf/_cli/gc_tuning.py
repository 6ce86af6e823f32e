"""The garbage collector during the start of a command. It owns when it works: not while modules are loaded,
which leave nothing behind, and only on what is made afterwards; it must not know what is loaded.

It is only for processes that are ours from the beginning: others have garbage of their own.
"""

from __future__ import annotations

import gc

_ours = False
_paused = False


def pause() -> None:
    """Do not collect until things are settled: this process is ours."""
    global _ours, _paused
    _ours, _paused = True, gc.isenabled()
    gc.disable()


def settle() -> None:
    """What is loaded by now lives as long as the process, if that is ours: it is not looked at any more."""
    global _paused
    if _ours:
        gc.freeze()
    # Only once: the author's code may have switched it off since then.
    if _paused:
        _paused = False
        gc.enable()
