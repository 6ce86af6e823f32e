"""What a function can see of its keyword arguments. It owns the reading of signatures and code; it must not
know what the arguments are.

Handlers are called with everything there is, and mostly have `**_` for what they do not need. If the code of
a function never looks into that, the rest is not even made: views, loggers, differences, copies.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Callable, Iterable
from typing import Any

REVEALING = frozenset(
    {"locals", "vars", "dir", "eval", "exec", "inspect", "currentframe", "stack", "_getframe", "breakpoint"}
)
"""By these names, a function can look into its arguments without naming them."""


def seen(fn: Callable[..., Any]) -> frozenset[str] | None:
    """The names of those arguments that the function can see; None if that can be all of them."""
    try:
        return _seen(fn)
    except TypeError:
        return None  # Not hashable, so not a function.


METADATA = frozenset(
    {
        *("name", "namespace", "uid", "meta", "labels", "annotations", "type", "resource", "logger", "memo"),
        *("stopped", "param", "retry", "started", "runtime"),
    }
)
"""What can be told by the metadata of an object, or without any object. Patches are not among it."""


def metadata_suffices(functions: Iterable[Callable[..., Any]], indices: Iterable[str] = ()) -> bool:
    """Whether all the functions can see nothing but the metadata of objects, and indices."""
    known = METADATA.union(indices)
    return all((names := seen(fn)) is not None and names <= known for fn in functions)


@functools.lru_cache(maxsize=10_000)
def _seen(fn: Callable[..., Any]) -> frozenset[str] | None:
    function = fn.__func__ if isinstance(fn, types.MethodType) else fn
    if not isinstance(function, types.FunctionType):
        return None
    code = function.__code__
    # Without `**`, whatever is not expected is an error, and that is to be seen, too.
    if not code.co_flags & 0x08 or code.co_flags & 0x04 or code.co_posonlyargcount:
        return None
    named = code.co_argcount + code.co_kwonlyargcount
    rest = code.co_varnames[named]
    if rest in code.co_cellvars or REVEALING.intersection(code.co_names):
        return None
    for instruction in dis.get_instructions(code):
        used = instruction.argval
        if used == rest or (isinstance(used, tuple) and rest in used):
            return None
    names = code.co_varnames[:named]
    return frozenset(names[1:] if isinstance(fn, types.MethodType) else names)
