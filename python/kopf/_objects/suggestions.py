"""Suggestions for misspelled names."""

from __future__ import annotations

import os
from collections.abc import Iterable


def similar(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant, if there is one."""
    import difflib  # only mistakes need it

    matches = difflib.get_close_matches(name, sorted(known), n=5)
    # Endings are wrong more often than beginnings: `retry` is meant to be `retries` and not `registry`.
    return max(matches, key=lambda match: len(os.path.commonprefix([name, match])), default=None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name, with a suggestion if there is one."""
    matches = similar(name, known)
    return f"; did you mean {matches!r}?" if matches is not None else "."
