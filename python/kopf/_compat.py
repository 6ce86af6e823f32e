"""The private modules of the original framework, for operators that import them. It owns one table of names.

Nothing is imported until asked for. Each use is answered by our own object and a `DeprecationWarning` that names
the public replacement, if there is one. What is not in the table fails with a message on where to look.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    pass

ROOTS = ("kopf._cogs", "kopf._core")
_ADVICE = "See `kopf.__all__` for the public names."
